"""A source of clicks, pipelines with state over it, and a job that is upgraded through savepoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from onceward import Job
from onceward.clock import SystemClock
from onceward.job import plan_rework
from onceward.savepoints import restore_savepoint, take
from onceward.sinks import FileSink

from .workspace import SparkWorkspace, read_files, visible

Pipeline = Callable[[SparkSession], DataFrame]


class Clicks(SparkWorkspace):
    """Who clicked on what, and pipelines over it."""

    def add(self, *pairs: tuple[str, str], to: str = "in", at: str = "00:00:00") -> None:
        folder = self.work / to
        folder.mkdir(exist_ok=True)
        number = len(list(folder.iterdir()))
        lines = [json.dumps({"user": user, "item": item, "at": f"2026-01-01 {at}"}) for user, item in pairs]
        (folder / f"{number}.json").write_text("\n".join(lines))

    def clicks(self, spark: SparkSession, folder: str = "in", name: str | None = None) -> DataFrame:
        reader = spark.readStream.schema("user string, item string, at timestamp").format("json")
        return (reader if name is None else reader.name(name)).load(str(self.work / folder))

    def clicked(self, pipeline: Pipeline, **options: Any) -> Job:
        return self.job([FileSink(self.files)], pipeline=pipeline, **{"output_mode": "update", **options})

    def by_user(self, spark: SparkSession) -> DataFrame:
        return self.clicks(spark).dropDuplicates(["user"])

    def user_then_item(self, spark: SparkSession) -> DataFrame:
        return self.clicks(spark).dropDuplicates(["user"]).dropDuplicates(["item"])

    def item_then_user(self, spark: SparkSession) -> DataFrame:
        return self.clicks(spark).dropDuplicates(["item"]).dropDuplicates(["user"])

    def user_then_count(self, spark: SparkSession) -> DataFrame:
        return self.by_user(spark).groupBy("item").count()


class Seen(StatefulProcessor):
    """A value, a list, a map and a timer for each user."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n long")
        self._items = handle.getListState("items", "item string")
        self._times = handle.getMapState("times", "item string", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        found = [row["item"] for row in rows]
        count = len(found) + (self._count.get()[0] if self._count.exists() else 0)
        self._count.update((count,))
        for item in found:
            self._items.appendValue((item,))
            self._times.updateValue((item,), (found.count(item),))
        self._handle.registerTimer(4_000_000_000_000)
        yield Row(user=key[0], n=count)

    def close(self) -> None:
        pass


@dataclass
class Upgrades:
    """One job in one checkpoint after the other; `run` gives the rows that were not there before."""

    clicks: Clicks
    spark: SparkSession
    settings: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    restores: SparkSession | None = None
    """The session that restores, where that is to be another one, which knows nothing of the job's settings."""

    @property
    def checkpoint(self) -> Path:
        """Spark's source of state does not find a folder with a blank in its name."""
        return self.clicks.work / f"checkpoint {self.number}"

    def job(self, pipeline: Pipeline, **options: Any) -> Job:
        return self.clicks.clicked(pipeline, checkpoint=self.checkpoint, **{**self.settings, **options})

    def run(self, pipeline: Pipeline, **options: Any) -> list[tuple[Any, ...]]:
        """One row a tuple, without the time of the click, sorted."""
        before = set(visible(self.clicks.files)) if self.clicks.files.exists() else set()
        self.job(pipeline, **options).run(self.spark)
        rows = [row for path in set(visible(self.clicks.files)) - before for row in _rows(path)]
        return sorted(rows)

    def upgrade(self, pipeline: Pipeline, *, plan: dict[str, Any] | None = None, **options: Any) -> tuple[str, ...]:
        """A savepoint of the newest checkpoint, restored for the next: what was said of it."""
        saved = take(self.checkpoint, self.clicks.work / "saved", clock=SystemClock(), spark=self.spark.version)
        self.number += 1
        try:
            rework = plan_rework(
                self.restores or self.spark,
                self.job(pipeline, **options),
                topology=saved.savepoint.topology,
                barrier=saved.savepoint.barrier,
                **(plan or {}),
            )
            restore_savepoint(saved.path, self.checkpoint, rework=rework)
        except BaseException:
            self.number -= 1
            raise
        return rework.lines


def _rows(path: Path) -> list[tuple[Any, ...]]:
    return [tuple(value for name, value in row.items() if name != "at") for row in read_files([path])]
