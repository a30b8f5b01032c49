"""Pipelines with `transformWithState`: state of every kind, some of it with a time to live, and timers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

_OUTPUT = "k string, seen long, listed long, mapped long"
_LIVES_MS = 3_600_000


class _Counts:
    """Per key: how many rows there were, which, and how many of each number. The last two end after an hour."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.seen = handle.getValueState("seen", "n long")
        self.listed = handle.getListState("listed", "id long", ttlDurationMs=_LIVES_MS)
        self.mapped = handle.getMapState("mapped", "n long", "times long", ttlDurationMs=_LIVES_MS)

    def close(self) -> None:
        pass

    def count(self, key: Any, ids: list[int], numbers: list[int], now_ms: int) -> tuple[str, int, int, int]:
        seen = (self.seen.get() or (0,))[0] + len(ids)
        self.seen.update((seen,))
        self.listed.appendList([(one,) for one in ids])
        for number in numbers:
            before = self.mapped.getValue((number,)) or (0,)
            self.mapped.updateValue((number,), (before[0] + 1,))
        self.handle.registerTimer(now_ms + _LIVES_MS)
        return str(key[0]), seen, len([*self.listed.get()]), len([*self.mapped.keys()])


class CountRows(_Counts, StatefulProcessor):
    """By rows."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """See `StatefulProcessor`."""
        found = [(row.id, row.n) for row in rows]
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        k, seen, listed, mapped = self.count(key, [one for one, _ in found], [n for _, n in found], now_ms)
        yield Row(k=k, seen=seen, listed=listed, mapped=mapped)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """See `StatefulProcessor`."""
        return iter([])


class CountFrames(_Counts, StatefulProcessor):
    """By frames of pandas."""

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """See `StatefulProcessor`."""
        frame = pd.concat([*rows])
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        counted = self.count(key, [*map(int, frame["id"])], [*map(int, frame["n"])], now_ms)
        yield pd.DataFrame([counted], columns=["k", "seen", "listed", "mapped"])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """See `StatefulProcessor`."""
        return iter([])


def processed_by_rows(rows: DataFrame, _: object) -> DataFrame:
    return rows.groupBy("k").transformWithState(
        statefulProcessor=CountRows(), outputStructType=_OUTPUT, outputMode="Update", timeMode="processingTime"
    )


def processed_by_frames(rows: DataFrame, _: object) -> DataFrame:
    return rows.groupBy("k").transformWithStateInPandas(
        statefulProcessor=CountFrames(), outputStructType=_OUTPUT, outputMode="Update", timeMode="processingTime"
    )
