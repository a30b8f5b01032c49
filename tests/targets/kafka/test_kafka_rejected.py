"""Records that a topic does not take: named before any of their transaction is sent, and the others wait."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from topics import JOB, KafkaWorkspace, send, slot_of, write

from onceward.contracts import RejectedRow
from onceward.errors import RowsRejected, TargetRefused
from onceward.testing.servers import KafkaServer

HOUR_MS = 3_600_000


def texts(*values: str, **columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({"value": list(values), **columns})


def test_a_record_larger_than_the_topic_takes_is_named_and_the_others_wait(kafka: KafkaServer) -> None:
    """Scenario 55."""
    workspace = KafkaWorkspace(kafka, partitions=1, max_message_bytes="10000")
    sink = workspace.sink(compression="none", max_rows_per_transaction=1000)
    slots = [
        slot_of(sink, texts("a", "b"), texts("x" * 9_800, "c"), slot=0),
        slot_of(sink, texts("y" * 20_000, "z" * 9_950, "d"), slot=1),
    ]
    with pytest.raises(RowsRejected, match="row 0 of slot 1 cannot be sent: it has 20000 bytes") as caught:
        send(sink, *slots)
    assert caught.value.epoch == 7
    assert workspace.messages() == []
    named = sink.find_rejected(slots, JOB, 7)
    assert [(row.slot, row.row) for row in named] == [(1, 0), (1, 1)]
    assert isinstance(named[0], RejectedRow)
    slots[1] = slot_of(sink, texts("d"), slot=1)
    assert send(sink, *slots), "without those that are named the others are taken"
    assert [len(m.value()) for m in workspace.messages()] == [1, 1, 9_800, 1, 1]


def test_many_records_for_a_topic_of_small_batches_are_taken(kafka: KafkaServer) -> None:
    """A batch as large as the client makes them by default would be refused as a whole."""
    workspace = KafkaWorkspace(kafka, partitions=1, max_message_bytes="5000")
    sink = workspace.sink(compression="none", config={"linger.ms": 50})
    assert write(sink, texts(*["x" * 100] * 2000))
    assert len(workspace.messages()) == 2000
    by_row = workspace.sink(topic=None, compression="none", name="by row", config={"linger.ms": 50})
    batch = texts(*["y" * 100] * 2000, topic=[workspace.topic] * 2000)
    with suppress(Exception):
        write(by_row, batch)
    assert write(by_row, batch), "the second try knows the topic"
    assert len(workspace.messages()) == 4000


def test_a_partition_that_the_topic_has_not_is_named(workspace: KafkaWorkspace) -> None:
    sink = workspace.sink()
    batch = texts("a", "b", "c", partition=pa.array([0, None, 2], pa.int32()))
    with pytest.raises(RowsRejected, match=f"row 2 of slot 0.*for partition 2, and topic '{workspace.topic}' has 2"):
        write(sink, batch)
    assert workspace.messages() == []


def test_rows_for_topics_that_are_not_there_are_named(workspace: KafkaWorkspace) -> None:
    sink = workspace.sink(topic=None)
    slot = slot_of(sink, texts("a", "b", "c", "d", topic=[workspace.topic, None, "no-such-topic", workspace.topic]))
    assert [(row.row, row.why) for row in sink.find_rejected([slot], JOB, 7)] == [
        (1, "its topic is null"),
        (2, "there is no topic 'no-such-topic'"),
    ]
    with pytest.raises(RowsRejected):
        send(sink, slot)
    assert workspace.messages() == []


def why_not(workspace: KafkaWorkspace, batch: pa.RecordBatch, **options: Any) -> list[tuple[int, str]]:
    """What is said of each row that cannot be sent; and nothing of them is sent."""
    sink = workspace.sink(**options)
    slot = slot_of(sink, batch)
    with pytest.raises(RowsRejected):
        send(sink, slot)
    assert workspace.messages() == []
    return [(row.row, row.why) for row in sink.find_rejected([slot], JOB, 7)]


@pytest.mark.parametrize(("limit", "size"), [(None, 1_048_400), ("5000000", 2_000_000)])
def test_a_record_as_large_as_the_topic_takes_is_sent(kafka: KafkaServer, limit: str | None, size: int) -> None:
    """The client's own limit, a million bytes, does not count."""
    workspace = KafkaWorkspace(kafka, partitions=1, **({} if limit is None else {"max_message_bytes": limit}))
    assert write(workspace.sink(compression="none"), texts("x" * size))
    assert [len(message.value()) for message in workspace.messages()] == [size]


def test_times_that_the_topic_does_not_take_are_named(workspace: KafkaWorkspace) -> None:
    now = time.time_ns() // 1_000_000
    times = pa.array([now, now + 2 * HOUR_MS, None, 0, now - 1000 * HOUR_MS], pa.int64())
    batch = pa.record_batch({"value": ["a", "b", "c", "d", "e"], "at": times})
    named = why_not(workspace, batch, value="value", timestamp="at")
    assert [row for row, _ in named] == [1, 3]
    assert (
        f"its time is {now + 2 * HOUR_MS} ms since 1970, which topic '{workspace.topic}' does not take" == named[0][1]
    )


def test_records_without_a_key_for_a_compacted_topic_are_named_or_refused_at_the_start(kafka: KafkaServer) -> None:
    workspace = KafkaWorkspace(kafka, cleanup_policy="compact")
    batch = texts("a", "b", key=["k", None])
    assert why_not(workspace, batch) == [(1, f"it has no key, and topic '{workspace.topic}' is compacted")]
    with pytest.raises(TargetRefused, match="takes no record without a key"):
        workspace.sink().check(pa.schema([("value", pa.string())]), output_mode="append")


def test_rows_for_topics_that_are_not_for_rows_are_named(workspace: KafkaWorkspace) -> None:
    assert write(workspace.sink(), pa.record_batch({"value": pa.array([], pa.string())}), epoch=1), (
        "makes the log of transactions"
    )
    batch = texts("a", "b", "c", topic=[workspace.topic, workspace.receipts_topic, "__transaction_state"])
    assert why_not(workspace, batch, topic=None) == [
        (1, f"topic '{workspace.receipts_topic}' is that of the receipts"),
        (2, "topic '__transaction_state' is Kafka's own"),
    ]
    with pytest.raises(TargetRefused, match="is Kafka's own"):
        workspace.sink(topic="__transaction_state").check(pa.schema([("value", pa.string())]), output_mode="append")


def header(*pairs: tuple[Any, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in pairs]


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_headers_that_a_reader_would_not_get_back_are_named(workspace: KafkaWorkspace) -> None:
    """The client takes a name up to its first null character, and so do those that read it."""
    rows = [header(("a", b"1")), header(("a\0b", b"1")), header(("a", b"1"), (None, b"2")), [None], header(("", b""))]
    batch = texts("a", "b", "c", "d", "e", headers=pa.array(rows, HEADERS))
    assert why_not(workspace, batch) == [
        (1, "the name of a header of it has a null character, at which many clients cut it off"),
        (2, "a header of it has no name"),
        (3, "a header of it is null"),
    ]


def as_text(*values: bytes) -> pa.Array:
    """Texts that came to be from bytes, as by Spark's cast."""
    return pa.array(values, pa.binary()).view(pa.string())


def test_texts_that_are_not_utf8_are_named_where_their_bytes_cannot_be_sent(workspace: KafkaWorkspace) -> None:
    plain = workspace.sink(name="plain")
    assert write(plain, pa.record_batch({"value": as_text(b"\xff\xfe")})), "as they are"
    assert [message.value() for message in workspace.messages()] == [b"\xff\xfe"]
    workspace.begin_anew()
    batch = pa.record_batch({"a": as_text(b"ok", b"\xff", "\ufffd".encode()), "b": [1, 2, 3]})
    why = "a text in it is not UTF-8, so that it has no form in JSON"
    assert why_not(workspace, batch) == [(1, why)]
    assert why_not(workspace, batch, key=["a", "b"], value="b") == [(1, why)]
    keys = as_text(b"a\xff", b"b").cast(pa.string())
    headers = pa.ListArray.from_arrays([0, 1, 2], pa.StructArray.from_arrays([keys, keys], ["key", "value"]))
    named = why_not(workspace, pa.record_batch({"value": ["a", "b"], "headers": headers}))
    assert named == [(0, "the name of a header of it is not UTF-8")]


@pytest.mark.parametrize("name", ["", ".", "..", "a\0b", "a b", "x" * 250, "é", "a/b", "a\nb"])
def test_what_cannot_be_the_name_of_a_topic_is_named_at_once(workspace: KafkaWorkspace, name: str) -> None:
    batch = texts("a", "b", topic=[workspace.topic, name])
    assert why_not(workspace, batch, topic=None) == [(1, f"{name!r} cannot be the name of a topic")]


def test_a_topic_name_that_is_not_utf8_is_named(workspace: KafkaWorkspace) -> None:
    batch = pa.record_batch({"value": ["a", "b"], "topic": as_text(workspace.topic.encode(), b"a\xff")})
    assert why_not(workspace, batch, topic=None) == [(1, "'a\ufffd' cannot be the name of a topic")]


def test_a_partition_below_none_is_named_and_null_is_left_to_the_key(workspace: KafkaWorkspace) -> None:
    batch = texts("a", "b", partition=pa.array([None, -1], pa.int32()))
    assert why_not(workspace, batch) == [(1, f"it is for partition -1, and topic '{workspace.topic}' has 2")]


def test_times_for_a_topic_that_keeps_its_own_are_refused_at_the_start_or_named(kafka: KafkaServer) -> None:
    """The brokers would put their own in the place of those that were sent, without a word."""
    workspace = KafkaWorkspace(kafka, message_timestamp_type="LogAppendTime")
    now = time.time_ns() // 1_000_000
    batch = pa.record_batch({"value": ["a", "b"], "at": pa.array([None, now], pa.int64())})
    with pytest.raises(TargetRefused, match=r"message\.timestamp\.type=LogAppendTime"):
        workspace.sink(timestamp="at").check(batch.schema, output_mode="append")
    named = why_not(workspace, batch, value="value", timestamp="at")
    assert named == [(1, f"it has a time, and topic '{workspace.topic}' puts its own in its place")]
