"""What Spark says of the epochs of a query once they are through, as events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from onceward.contracts.events import EngineReported, StateSize

_MOST_AT_ONCE: Final = 20
"""Each report costs a call into the JVM. Of more epochs in a second only so many, the newest, are asked for."""


def engine_reports(query: StreamingQuery) -> Callable[[], Iterator[EngineReported]]:
    """A function that gives the reports of the epochs that ended since it was last called, the newest of them.

    A listener would be told of each, for 15 to 25 ms of every epoch: Spark calls Python for it and waits.
    """
    newest = -1

    def reports() -> Iterator[EngineReported]:
        nonlocal newest
        try:
            recent = query._jsq.recentProgress()
            found = [recent[place] for place in range(max(0, len(recent) - _MOST_AT_ONCE), len(recent))]
            told = [json.loads(progress.json()) for progress in found if progress.batchId() > newest]
        except Py4JError:
            # The JVM is going down, or gone: the end of the run is told elsewhere.
            return
        for progress in told:
            # Spark also reports that it had nothing to do, under the number of the epoch to come.
            if "addBatch" in progress.get("durationMs", {}):
                newest = int(progress["batchId"])
                yield report_of(progress)

    return reports


def report_of(progress: Mapping[str, Any]) -> EngineReported:
    """From Spark's JSON."""
    sources = progress.get("sources", ())
    return EngineReported(
        epoch=int(progress["batchId"]),
        at=datetime.now(UTC),
        durations_ms={step: int(took) for step, took in progress.get("durationMs", {}).items()},
        input_rows=int(progress.get("numInputRows", 0)),
        sources={source["description"]: _text(source.get("endOffset")) for source in sources},
        state=tuple(
            StateSize(
                name=str(operator.get("operatorName", "")),
                rows=int(operator.get("numRowsTotal", 0)),
                bytes=int(operator.get("memoryUsedBytes", 0)),
                commit_ms=int(operator.get("commitTimeMs", 0)),
            )
            for operator in progress.get("stateOperators", ())
        ),
    )


def _text(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)
