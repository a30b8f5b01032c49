"""With which of Spark's settings a query starts: the job's options, and defaults where its user has said nothing, since
Spark's own are made for large clusters."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onceward.errors import ConfigurationError
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.checkpoint_config import BACKENDS, CHANGELOG, PARTITIONS, PROVIDER, CheckpointConfig
from onceward.spark.local_manager import LOCAL_MANAGER, load_local_manager
from onceward.spark.plan import keeps_state, shuffles

log = logging.getLogger("onceward")

MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
FILE_SYSTEM_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_OF_OPTION: Final = {PROVIDER: "state_backend", PARTITIONS: "state_partitions"}
_setting = threading.Lock()
_NO_SOURCES: Final = "Initializing"
_SOURCES_WITHIN_S: Final = 10.0
_LOOK_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Situation:
    """What the defaults go by. `chosen` are the settings that the user has made, with their values; `pinned` those that
    the checkpoint has kept from its first start; `state` tells whether it holds any, or will."""

    chosen: Mapping[str, str]
    pinned: Mapping[str, str]
    is_new: bool
    state: bool
    holds_state: bool
    changelogs: bool
    local_master: bool
    local_files: bool
    cores: int


def settings_for(now: Situation, config: CheckpointConfig) -> dict[str, str]:
    """What the query is told at its start, besides what the session says."""
    told: dict[str, str] = {}
    if now.is_new and now.local_master:
        # The 200 of Spark's default take minutes for ten rows there.
        told[PARTITIONS] = str(now.cores)
    if now.is_new and now.state:
        told[PROVIDER] = BACKENDS["rocksdb"]
    provider = {**told, **now.chosen, **now.pinned, **config.asks_for()}.get(PROVIDER)
    is_fresh = not now.holds_state and PROVIDER not in now.chosen
    if provider == BACKENDS["rocksdb"] and now.state and (now.changelogs or is_fresh):
        told[CHANGELOG] = "true"
    if now.local_files and not now.state and not now.holds_state:
        # Elsewhere it would keep the state of an epoch's first computation: docs/decisions/0025.
        told[MANAGER] = FILE_SYSTEM_MANAGER
    return {key: value for key, value in told.items() if key not in now.chosen} | config.asks_for()


def takes_local_manager(now: Situation) -> bool:
    """Whether our own manager is for this query. Executors write state, also that of a query which somebody else starts
    in this session just now: they find our class in the driver's JVM only."""
    return now.local_files and now.local_master and MANAGER not in now.chosen


def refuse_contradiction(now: Situation, config: CheckpointConfig) -> None:
    """Refuse to ask for something else than what the checkpoint has: Spark would go on with that and not say so."""
    asked = config.asks_for()
    for key, pinned in now.pinned.items():
        by = f"{_OF_OPTION[key]} of its CheckpointConfig" if key in asked and key in _OF_OPTION else "the session"
        # What the session says matters where there is state: without it nothing depends on these settings.
        wanted = asked.get(key) or (now.chosen.get(key) if now.holds_state else None)
        if wanted is not None and wanted.lower() != pinned.lower():
            raise ConfigurationError(
                f"{by} asks for {key} = {wanted}, and this checkpoint has {pinned}, which a start does not change",
                hint=f"set it to {pinned}, or leave it out; for another one, begin a new checkpoint"
                + (f", or restore a savepoint with --state-partitions {wanted}" if key == PARTITIONS else ""),
            )


def refuse_failures_with_state(now: Situation, config: CheckpointConfig) -> None:
    """Refuse to stage an epoch again in one run where tasks of the first time may still write the state."""
    if config.tolerable_failures and (now.state or now.holds_state):
        raise ConfigurationError(
            f"tolerable_failures is {config.tolerable_failures}, and the query keeps state: a late task of the failed "
            "epoch could write over the state of the one that is delivered",
            hint="leave it out, and let a supervisor restart the job: exit code 3 says that it may",
        )


def check_settings(frame: DataFrame, checkpoint: Path, config: CheckpointConfig) -> None:
    """Before anything moves: can the query have what it is asked to have?"""
    now = situation(frame, checkpoint)
    refuse_contradiction(now, config)
    refuse_failures_with_state(now, config)


@contextmanager
def query_settings(frame: DataFrame, checkpoint: Path, config: CheckpointConfig) -> Iterator[None]:
    """For the query of this frame that is started inside: Spark clones the session's settings then."""
    spark = frame.sparkSession
    with _setting:
        now = situation(frame, checkpoint)
        told = settings_for(now, config)
        if takes_local_manager(now) and load_local_manager(spark):
            told[MANAGER] = LOCAL_MANAGER
        _say(frame, now, told, config)
        before = {key: spark.conf.get(key) if _is_set(spark, key) else None for key in told}
        for key, value in told.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, old in before.items():
                spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def wait_for_sources(query: StreamingQuery) -> None:
    """Until the query has made its sources, which it does in a thread of its own, by the settings of the session: a
    file source keeps its list by the manager that is set then."""
    deadline = time.monotonic() + _SOURCES_WITHIN_S
    while query.isActive and query.status["message"].startswith(_NO_SOURCES) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def situation(frame: DataFrame, checkpoint: Path) -> Situation:
    """As the session, the plan and the checkpoint show it."""
    spark, logs = frame.sparkSession, SparkLogs(checkpoint)
    pinned = logs.pinned()
    files = str(spark._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:")
    return Situation(
        chosen={
            key: str(spark.conf.get(key))
            for key in {PARTITIONS, PROVIDER, CHANGELOG, MANAGER, *pinned}
            if _is_set(spark, key)
        },
        pinned=pinned,
        is_new=logs.planned() < 0,
        state=keeps_state(frame),
        holds_state=logs.keeps_state(),
        changelogs=logs.has_changelogs(),
        # Not `local-cluster[...]`, whose executors have a JVM of their own.
        local_master=(spark.sparkContext.master or "").partition("[")[0] == "local",
        local_files=files.startswith("file:"),
        cores=spark.sparkContext.defaultParallelism,
    )


def most_tasks(frame: DataFrame, checkpoint: Path, config: CheckpointConfig) -> int:
    """How many tasks an epoch may have at its end: those of the last shuffle; one for each core where files are read
    and nothing is shuffled. What other sources have, only they know: then as many as a shuffle would. Of an epoch that
    is there, as `foreachBatch` gets it, its partitions tell."""
    spark = frame.sparkSession
    cores = spark.sparkContext.defaultParallelism
    found = frame._jdf.queryExecution().analyzed().collectLeaves()
    leaves = [found.apply(number) for number in range(found.size())]
    if not shuffles(frame):
        if all("FileSource" in leaf.toString() for leaf in leaves):
            return cores
        if all(leaf.nodeName() == "LogicalRDD" for leaf in leaves):
            return max(sum(int(leaf.rdd().getNumPartitions()) for leaf in leaves), cores)
    kept = SparkLogs(checkpoint).shuffle_partitions()
    told = settings_for(situation(frame, checkpoint), config).get(PARTITIONS)
    return max(kept or int(told or spark.conf.get(PARTITIONS) or 1), cores)


def _say(frame: DataFrame, now: Situation, told: Mapping[str, str], config: CheckpointConfig) -> None:
    if PARTITIONS in told and config.state_partitions is None and shuffles(frame):
        log.info(
            "state is kept in %s partitions, by the cores of %s; state_partitions or %s chooses another number, before "
            "the first start",
            told[PARTITIONS],
            frame.sparkSession.sparkContext.master,
            PARTITIONS,
        )
    if now.is_new and now.state and PROVIDER in told and config.state_backend is None:
        log.info(
            "state is kept in RocksDB; state_backend or %s chooses another place, before the first start", PROVIDER
        )


def _is_set(spark: SparkSession, name: str) -> bool:
    return bool(spark._jsparkSession.sessionState().conf().contains(name))
