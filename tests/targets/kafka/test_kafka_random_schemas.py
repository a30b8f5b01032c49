"""Random rows into topics with random settings: what stands there is what was sent, or a row is refused by name.

`ONCEWARD_SEED=123 pytest tests/targets/kafka/test_kafka_random_schemas.py -k replay` draws one of them again.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from topics import JOB, KafkaWorkspace, send, slot_of

from onceward.errors import RowsRejected, TargetRefused
from onceward.sinks import KafkaSink
from onceward.testing.servers import KafkaServer

DRAWS = 60
"""Each makes two topics, a session and a search: as many as fit into a minute on a quiet machine."""
SOAK = 2_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TEXTS = ("", "a", "k1", "k1", '"', "\\", "a\nb", "\0", "é", "数🦆", "x" * 300, "null")
NAMES = ("h", "h", "", "é", "a b", "x" * 100)
BAD_NAMES = ("a\0b", None)
MAX_BYTES = (2_000, 20_000, 1_048_588)
FAULTS = ("size", "partition", "topic", "header", "time", "key", "utf8")


@dataclass
class RandomRows:
    """What is to be sent, as Python has it, with the numbers of the rows that must be refused."""

    rows: list[dict[str, Any]]
    bad: dict[int, str]
    columns: dict[str, pa.Array]
    options: dict[str, Any]


class RandomTopics:
    """A pair of topics, options and rows by one seed."""

    def __init__(self, seed: int, server: KafkaServer) -> None:
        self.chance = chance = random.Random(seed)
        self.is_compacted = chance.random() < 0.3
        self.own_times = chance.random() < 0.2
        self.partitions = chance.randrange(1, 5)
        self.max_bytes = chance.choice(MAX_BYTES)
        self.workspace = KafkaWorkspace(
            server,
            partitions=self.partitions,
            max_message_bytes=str(self.max_bytes),
            cleanup_policy="compact" if self.is_compacted else chance.choice(("delete", "compact,delete")),
            message_timestamp_type="LogAppendTime" if self.own_times else "CreateTime",
        )
        self.parts = {part for part in ("key", "partition", "headers", "at", "topic") if chance.random() < 0.5}
        self.is_json = chance.random() < 0.4
        self.fault = chance.choice((None, *FAULTS))

    def rows(self) -> RandomRows:
        chance, parts = self.chance, self.parts
        count = chance.choice((1, 2, 5, 30))
        rows = [self._row(number) for number in range(count)]
        bad: dict[int, str] = {}
        if self.fault is not None:
            for number in chance.sample(range(count), min(count, chance.choice((1, 1, 3)))):
                if self._spoil(rows[number]):
                    bad[number] = self.fault
        columns: dict[str, pa.Array] = {
            "value": pa.array([row["value"] for row in rows], pa.binary()).view(pa.string()),
            "number": pa.array(range(count), pa.int64()),
        }
        options: dict[str, Any] = {"value": ["value", "number"] if self.is_json else "value"}
        for part, kind in {"key": pa.string(), "partition": pa.int32(), "headers": HEADERS, "at": pa.int64()}.items():
            if part in parts:
                columns[part] = pa.array([row[part] for row in rows], kind)
                options["timestamp" if part == "at" else part] = part
        if "topic" in parts:
            columns["topic"] = pa.array([row["topic"] for row in rows], pa.string())
            options |= {"topic": None, "topic_column": "topic"}
        return RandomRows(rows, bad, columns, options)

    def _row(self, number: int) -> dict[str, Any]:
        chance = self.chance
        now = time.time_ns() // 1_000_000
        return {
            "value": chance.choice(TEXTS).encode() + str(number).encode(),
            "key": chance.choice(TEXTS) if self._has_keys() else chance.choice((None, *TEXTS)),
            "partition": chance.choice((None, *range(self.partitions))),
            "headers": None
            if chance.random() < 0.3
            else [{"key": chance.choice(NAMES), "value": chance.choice((None, b"", b"\xff\0"))} for _ in range(2)],
            "at": None if self.own_times else chance.choice((None, now, now - 86_400_000)),
            "topic": self.workspace.topic,
        }

    def _has_keys(self) -> bool:
        return "compact" in self._policy()

    def _policy(self) -> str:
        from confluent_kafka.admin import ConfigResource

        if not hasattr(self, "_known_policy"):
            admin, resource = self.workspace.server.admin(), ConfigResource("topic", self.workspace.topic)
            asked = admin.describe_configs([resource])[resource]
            self._known_policy = str(asked.result(10)["cleanup.policy"].value)
        return self._known_policy

    def _spoil(self, row: dict[str, Any]) -> bool:
        """Make the row one that must be refused; False where the draw has no place for this fault."""
        chance, parts = self.chance, self.parts
        match self.fault:
            case "size":
                row["value"] = b"y" * (self.max_bytes + chance.choice((0, 1, 5_000)))
            case "partition" if "partition" in parts:
                row["partition"] = chance.choice((-1, -7, self.partitions, 2**31 - 1))
            case "topic" if "topic" in parts:
                names = (None, "", "..", "a\0b", "no-such", "é", "x" * 250, self.workspace.receipts_topic)
                row["topic"] = chance.choice(names)
            case "header" if "headers" in parts:
                row["headers"] = chance.choice(([None], [{"key": chance.choice(BAD_NAMES), "value": b""}]))
            case "time" if "at" in parts:
                row["at"] = time.time_ns() // 1_000_000 if self.own_times else chance.choice((0, -1, 2**62))
            case "key" if "key" in parts and self._has_keys():
                row["key"] = None
            case "utf8" if self.is_json:
                row["value"] = b"\xff"
            case _:
                return False
        return True

    # --- what came of it --------------------------------------------------------------------------

    def play(self) -> str:
        sent = self.rows()
        sink = self.workspace.sink(compression=self.chance.choice(("none", "lz4", "zstd")), **sent.options)
        batch = pa.record_batch(sent.columns)
        try:
            sink.check(batch.schema, output_mode="append")
        except TargetRefused:
            assert self._is_to_be_refused(), "nothing stands against it"
            return "refused at the start"
        assert not self._is_to_be_refused(), "the start should have refused it"
        self._send(sink, batch, sent)
        self._compare(sent)
        return "with rows at fault" if sent.bad else "whole"

    def _is_to_be_refused(self) -> bool:
        if "topic" in self.parts:
            return False
        return (self._has_keys() and "key" not in self.parts) or (self.own_times and "at" in self.parts)

    def _send(self, sink: KafkaSink, batch: pa.RecordBatch, sent: RandomRows) -> None:
        if self._has_keys() and "key" not in self.parts:
            sent.bad = dict.fromkeys(range(len(sent.rows)), "key")
        if not sent.bad:
            assert send(sink, slot_of(sink, batch))
            return
        slot = slot_of(sink, batch)
        with pytest.raises(RowsRejected):
            send(sink, slot)
        assert self.workspace.messages() == []
        assert {row.row for row in sink.find_rejected([slot], JOB, 7)} == set(sent.bad)
        assert self.workspace.messages() == []
        kept = [number for number in range(batch.num_rows) if number not in sent.bad]
        assert send(sink, slot_of(sink, batch.take(pa.array(kept, pa.int64()))))

    def _compare(self, sent: RandomRows) -> None:
        left = {n: row for n, row in enumerate(sent.rows) if n not in sent.bad}
        for message in self.workspace.messages():
            number, row = self._find(message.value(), left)
            assert message.key() == (row["key"].encode() if "key" in self.parts and row["key"] is not None else None)
            if "partition" in self.parts and row["partition"] is not None:
                assert message.partition() == row["partition"]
            if "at" in self.parts and row["at"] is not None:
                assert message.timestamp()[1] == row["at"]
            headers = [(one["key"], one["value"]) for one in row["headers"] or ()] if "headers" in self.parts else []
            assert (message.headers() or []) == headers
            del left[number]
        assert not left, f"{sorted(left)} are missing"

    def _find(self, value: bytes, left: dict[int, dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        if self.is_json:
            found = json.loads(value)
            assert found["value"].encode() == left[found["number"]]["value"]
            return found["number"], left[found["number"]]
        return next((number, row) for number, row in left.items() if row["value"] == value)


def draw(seeds: range, server: KafkaServer) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts[RandomTopics(seed, server).play()] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    return counts


def test_what_stands_in_a_topic_is_what_was_sent_or_a_row_is_named(kafka: KafkaServer, record_sweep: list[str]) -> None:
    counts = draw(range(DRAWS), kafka)
    assert min(counts[kind] for kind in ("whole", "with rows at fault", "refused at the start")) > DRAWS / 20
    record_sweep.append("Kafka, random topics: " + ", ".join(f"{kind} {count}" for kind, count in counts.items()))


@pytest.mark.soak
def test_what_stands_in_many_topics_is_what_was_sent_or_a_row_is_named(
    kafka: KafkaServer, record_sweep: list[str]
) -> None:
    counts = draw(range(DRAWS, DRAWS + SOAK), kafka)
    record_sweep.append("Kafka, random topics, soak: " + ", ".join(f"{kind} {n}" for kind, n in counts.items()))


@pytest.mark.skipif("ONCEWARD_SEED" not in os.environ, reason="draws the seed in ONCEWARD_SEED")
def test_replay_of_one_seed(kafka: KafkaServer) -> None:
    print(RandomTopics(int(os.environ["ONCEWARD_SEED"]), kafka).play())
