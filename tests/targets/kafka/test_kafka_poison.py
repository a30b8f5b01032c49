"""From a row at fault to a running job: the epoch stops, `poison` names the rows, `divert` takes them out, it goes on.

`ONCEWARD_SEED=123 pytest tests/targets/kafka/test_kafka_poison.py` walks that way with other faults.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from topics import KafkaWorkspace

from onceward.admin import divert_poison, find_poison
from onceward.contracts import SlotValues
from onceward.errors import RowsRejected
from onceward.identity import JobIdentity
from onceward.recovery import look_at
from onceward.sinks import KafkaSink
from onceward.storage import LocalStorage
from onceward.testing import DirectoryLogs, Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.servers import KafkaServer

SEED = int(os.environ.get("ONCEWARD_SEED", "20261116"))
WALKS = 6
ENDS = (12, 20, 31)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Spoiling(KafkaSink):
    """Gives every row headers, a partition and a topic; some of them, by their ids, such as no topic takes."""

    faults: dict[int, str]
    rows_topic: str

    def send_transaction(self, slots: Any, job: JobIdentity, checkpoint_id: int, timestamp: Any) -> bool:
        return super().send_transaction([self._spoilt(slot) for slot in slots], job, checkpoint_id, timestamp)

    def find_rejected(self, slots: Any, job: JobIdentity, checkpoint_id: int) -> Any:
        return super().find_rejected([self._spoilt(slot) for slot in slots], job, checkpoint_id)

    def _spoilt(self, slot: SlotValues) -> SlotValues:
        def read() -> Iterator[pa.RecordBatch]:
            for batch in slot.read():
                rows = [(number, self.faults.get(number)) for number in batch.column("id").to_pylist()]
                topics = {"no topic": "not-there", "topic with a null": "a\0b", "topic that is null": None}
                columns = {
                    "topic": pa.array([topics.get(fault or "", self.rows_topic) for _, fault in rows], pa.string()),
                    "part": pa.array([9 if fault == "partition" else None for _, fault in rows], pa.int32()),
                    "head": pa.array(
                        [[{"key": "a\0b" if fault == "header" else "a", "value": b""}] for _, fault in rows], HEADERS
                    ),
                    "text": pa.array(
                        [b"\xff" if fault == "utf8" else b"x" * (9_000 * (fault == "size")) for _, fault in rows]
                    ).view(pa.string()),
                }
                yield pa.record_batch({**{name: batch.column(name) for name in batch.schema.names}, **columns})

        return SlotValues(slot.slot, slot.rows, slot.receipt, read)


FAULTS = ("no topic", "topic with a null", "topic that is null", "partition", "header", "utf8", "size")


def walk(seed: int, kafka: KafkaServer, folder: Path) -> int:
    """How many rows were taken out on the way."""
    chance = random.Random(seed)
    workspace = KafkaWorkspace(kafka, max_message_bytes="5000")
    sink = Spoiling(
        workspace.servers,
        topic_column="topic",
        partition="part",
        headers="head",
        receipts_topic=workspace.receipts_topic,
        name="kafka",
        timeout_s=10,
        config={"linger.ms": 0},
    )
    sink.rows_topic = workspace.topic
    sink.faults = {number: chance.choice(FAULTS) for number in chance.sample(range(ENDS[-1]), chance.randrange(1, 6))}
    harness = Harness(
        SinkUnderTest(sink, workspace.rows, ordered=False),
        source=Source(ends=ENDS, keys=3),
        storage=LocalStorage(folder / "checkpoint" / "onceward"),
        logs=DirectoryLogs(folder / "checkpoint"),
        rows_in_a_batch=4,
        name=f"walk {seed}",
    )
    diverted: set[int] = set()
    ending = harness.life()
    while isinstance(ending, Failed):
        assert isinstance(ending.error, RowsRejected), f"seed {seed}: {ending.error!r}"
        looked, _ = look_at(
            sinks=harness.sinks,
            storage=harness.storage,
            decisions=harness.logs,
            directory_id=harness.directory_id,
            clock=harness.clock,
        )
        named = {int(str(row.values["id"])) for row in find_poison(looked)}
        assert named, f"seed {seed}"
        assert named <= sink.faults.keys() - diverted, f"seed {seed}: {named} of {sink.faults}"
        divert_poison(looked, folder / "rejected")
        diverted |= named
        ending = harness.life()
    assert isinstance(ending, Finished), f"seed {seed}: {ending}"
    assert diverted == sink.faults.keys(), f"seed {seed}"
    found = sorted(row["id"] for row in workspace.rows())
    assert found == [number for number in range(ENDS[-1]) if number not in diverted], f"seed {seed}"
    return len(diverted)


def test_the_way_from_any_fault_of_rows_to_a_running_job(
    kafka: KafkaServer, tmp_path: Path, record_sweep: list[str]
) -> None:
    taken_out = 0
    for seed in range(SEED, SEED + WALKS):
        (tmp_path / str(seed)).mkdir()
        taken_out += walk(seed, kafka, tmp_path / str(seed))
    record_sweep.append(f"Kafka, from fault to running job: {WALKS} walks, {taken_out} rows taken out")
