"""One epoch of many slots, no Spark: `python -m benchmarks.slots_once SLOTS FOLDER` prints seconds and megabytes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa

from onceward.clock import SystemClock
from onceward.contracts import Guarantee
from onceward.epoch import Publisher, SinkAck, SlotAck
from onceward.identity import JobName
from onceward.recovery import make_plan, open_checkpoint, take_survey
from onceward.sinks import FileSink
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage


def main() -> None:
    """Stage really small files first; only the driver's part of the protocol is measured."""
    slots, folder = int(sys.argv[1]), Path(sys.argv[2])
    sink = FileSink(folder / "out", format="jsonl")
    batch = pa.RecordBatch.from_pydict({"id": [1]})
    sink.check(batch.schema, output_mode="append")
    checkpoint = folder / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "commits").mkdir()
    opened = open_checkpoint(
        name=JobName("bench"),
        sinks=(sink,),
        guarantee=Guarantee.EXACTLY_ONCE,
        storage=LocalStorage(checkpoint / "onceward"),
        decisions=SparkLogs(checkpoint),
        directory_id="here",
        clock=SystemClock(),
    )
    (checkpoint / "offsets" / "0").write_text('v1\n{"batchTimestampMs":1700000000000,"conf":{}}\n{"offset":0}')
    order = opened.coordinator.begin(0)
    assert order is not None
    acks = []
    for slot in range(slots):
        # The directory sync of `pre_commit` belongs to the executors; here one process would pay for all of them.
        context = order.context(sink.name, slot, slot)
        staged = f"{context.transaction}-0.jsonl"
        final = f"part-{context.transaction}-{order.fingerprint}-0of1.jsonl"
        (folder / "out" / ".onceward" / staged).write_text('{"id":1}\n')
        file = {"staged": staged, "final": final, "rows": 1, "bytes": 9}
        handle = {"transaction": str(context.transaction), "files": [file], "rows": 1, "bytes": 9}
        acks.append(SlotAck(slot, 1, (SinkAck((sink.name,), handle),)))
    before_mb = _peak_mb()
    started = time.perf_counter()
    opened.coordinator.pre_commit(order, acks)
    (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    plan = make_plan(take_survey(opened.context, known_generations=frozenset()))
    assert len(plan.steps) == 1
    Publisher(opened.context).publish_decided()
    seconds = time.perf_counter() - started
    assert opened.context.watermark() == 0
    assert sum(1 for _ in (folder / "out").glob("*.jsonl")) == slots
    print(json.dumps({"seconds": seconds, "megabytes": _peak_mb(), "before": before_mb}))


def _peak_mb() -> float:
    """The most memory this program has had; `getrusage` would count what its parent had when it forked."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


if __name__ == "__main__":
    main()
