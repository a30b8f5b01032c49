"""A savepoint restored for a changed job: what is to be done to the copy, planned before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from onceward.errors import ConfigurationError
from onceward.job.facade import Job
from onceward.operators import Topology, plan_mapping, rewrite
from onceward.spark.checkpoint_config import PARTITIONS
from onceward.spark.rescale import refuse_rescale, rescale


@dataclass(frozen=True, slots=True)
class PlannedRework:
    """Called with the restored copy before it gets its name. `lines` say to a person what will become of it."""

    lines: tuple[str, ...]
    act: Callable[[Path], None]

    def __call__(self, root: Path) -> None:
        """Change the copy."""
        self.act(root)


def plan_rework(
    spark: SparkSession,
    job: Job,
    *,
    topology: Topology,
    barrier: str,
    allow_non_restored: bool = False,
    renames: Mapping[str, str] | None = None,
    state_partitions: int | None = None,
) -> PlannedRework:
    """For a savepoint with this topology and barrier. `PipelineChanged` where the job's pipeline cannot go on from it,
    `ConfigurationError` where its state cannot be split so. Nothing is written, and no row is read."""
    now = job.topology(job.stream(spark))
    if now is None:
        return _not_compared(asked=allow_non_restored or bool(renames) or state_partitions is not None)
    mapping = plan_mapping(topology, now, allow_non_restored=allow_non_restored, renames=renames)
    lines = mapping.described()
    settings = {key: str(value) for key, value in json.loads(barrier.split("\n")[1]).get("conf", {}).items()}
    if state_partitions is not None:
        refuse_rescale(spark, settings, state_partitions)
        lines.append(f"state goes from {settings.get(PARTITIONS)} partitions to {state_partitions}")

    def act(root: Path) -> None:
        rewrite(root, mapping)
        if state_partitions is not None:
            rescale(spark, root, state_partitions)

    return PlannedRework(tuple(lines), act)


def _not_compared(*, asked: bool) -> PlannedRework:
    """Before Spark 4.2: as it is, or not at all."""
    if asked:
        raise ConfigurationError(
            "Spark does not tell the operators of this pipeline, so it cannot be compared with the savepoint's",
            hint="restoring for a changed pipeline needs Spark 4.2; `onceward doctor FILE` says what else may be wrong",
        )
    return PlannedRework(
        ("Spark does not tell the operators of the pipeline: they were not compared",), lambda root: None
    )
