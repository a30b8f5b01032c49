"""What a query is told where its user has said nothing, since Spark's own defaults are made for large clusters."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from onceward.spark.checkpoint import SparkLogs

log = logging.getLogger("onceward")

_PARTITIONS = "spark.sql.shuffle.partitions"
# Nodes of a logical plan that bring rows of all tasks together.
_SHUFFLING = re.compile(
    r"^\W*(?:Aggregate|Join|Deduplicate\w*|Distinct|Repartition\w*|Rebalance\w*|Sort|Window|\w+WithState\w*)\b",
    re.MULTILINE,
)
_setting = threading.Lock()


@contextmanager
def query_defaults(frame: DataFrame, checkpoint: Path) -> Iterator[None]:
    """For the query of this frame that is started inside: Spark clones the session's settings then."""
    spark = frame.sparkSession
    with _setting:
        partitions = _default_partitions(spark, checkpoint)
        if partitions is None:
            yield
            return
        if _shuffles(frame):
            log.info(
                "state is kept in %d partitions, by the cores of %s; %s chooses another number, before the first start",
                partitions,
                spark.sparkContext.master,
                _PARTITIONS,
            )
        spark.conf.set(_PARTITIONS, partitions)
        try:
            yield
        finally:
            spark.conf.unset(_PARTITIONS)


def most_tasks(frame: DataFrame, checkpoint: Path) -> int:
    """How many tasks an epoch may have at its end: those of the last shuffle; one for each core where files are read
    and nothing is shuffled. What other sources have, only they know: then as many as a shuffle would."""
    spark = frame.sparkSession
    cores = spark.sparkContext.defaultParallelism
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    if not _shuffles(frame) and all("FileSource" in leaves.apply(n).toString() for n in range(leaves.size())):
        return cores
    kept = SparkLogs(checkpoint).shuffle_partitions() or _default_partitions(spark, checkpoint)
    return max(kept or int(spark.conf.get(_PARTITIONS) or 1), cores)


def _shuffles(frame: DataFrame) -> bool:
    return _SHUFFLING.search(frame._jdf.queryExecution().analyzed().toString()) is not None


def _default_partitions(spark: SparkSession, checkpoint: Path) -> int | None:
    """State partitions for a new checkpoint on a local master; None where Spark or the user has a number. The 200 of
    Spark's default take minutes for ten rows there."""
    is_local = (spark.sparkContext.master or "").startswith("local")
    if _is_set(spark, _PARTITIONS) or not is_local or SparkLogs(checkpoint).planned() >= 0:
        return None
    return spark.sparkContext.defaultParallelism


def _is_set(spark: SparkSession, name: str) -> bool:
    return bool(spark._jsparkSession.sessionState().conf().contains(name))
