"""Both producers: what they do with the columns' bytes, with a full queue, and when they are forgotten."""

from __future__ import annotations

import contextlib
import gc
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as driver
import pyarrow as pa
import pytest
from topics import KafkaWorkspace, until, write

from onceward.contracts import Severity, Workload
from onceward.errors import ConfigurationError, RowsRejected
from onceward.sinks.kafka import client
from onceward.sinks.kafka.encode import Records
from onceward.sinks.kafka.library import MESSAGE, PART, library, refuse_untried, why_unusable
from onceward.sinks.kafka.record_producer import RecordProducer
from onceward.testing.servers import KafkaServer

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
VARIANTS = ["together", "each"]
EITHER = pytest.mark.parametrize("kind", client.PRODUCERS)


def with_headers(rows: dict[str, Any], variant: str) -> pa.RecordBatch:
    """Rows that go out in one call, or, for their headers, in a call each."""
    count = len(next(iter(rows.values())))
    more = {} if variant == "together" else {"headers": pa.array([[{"key": "h", "value": b"1"}]] * count, HEADERS)}
    return pa.record_batch({**rows, **more})


@EITHER
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_full_queue_is_waited_for_and_the_order_is_kept(workspace: KafkaWorkspace, variant: str, kind: str) -> None:
    """Scenario 47's order, where most records find no room at first."""
    sink = workspace.sink(producer=kind, config={"linger.ms": 0, "queue.buffering.max.messages": 7})
    count = 500
    rows = with_headers({"key": ["same"] * count, "value": [str(n) for n in range(count)]}, variant)
    assert write(sink, rows)
    assert [int(message.value()) for message in workspace.messages()] == list(range(count))


@EITHER
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_queue_that_empties_behind_our_back_is_no_reason_to_give_up(
    workspace: KafkaWorkspace, variant: str, kind: str
) -> None:
    """Another thread keeps Python busy meanwhile, so between two looks at the queue anything can happen."""
    done = threading.Event()
    busy = threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(done.is_set, True)], daemon=True)
    busy.start()
    try:
        sink = workspace.sink(producer=kind, config={"linger.ms": 0, "queue.buffering.max.messages": 7})
        for epoch in range(5):
            rows = with_headers({"key": ["same"] * 100, "value": [str(n) for n in range(100)]}, variant)
            assert write(sink, rows, epoch=epoch)
    finally:
        done.set()
    assert [int(message.value()) for message in workspace.messages()] == [*range(100)] * 5


@EITHER
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("places", [[1, 1, 0, None, 0, 1, None, 1], [1, 1, 0, 0, 1, 0, 1, 1]], ids=["some", "all"])
def test_partitions_are_chosen_row_by_row_from_the_first_record_on(
    workspace: KafkaWorkspace, places: list[int | None], variant: str, kind: str
) -> None:
    """Also where the library does not know the topic yet."""
    columns = {"value": [str(n) for n in range(8)], "partition": pa.array(places, pa.int32())}
    assert write(workspace.sink(producer=kind), with_headers({"key": ["k"] * 8, **columns}, variant))
    found = {int(message.value()): message.partition() for message in workspace.messages()}
    free = found[3]
    assert found == {n: free if place is None else place for n, place in enumerate(places)}
    for partition in (0, 1):
        there = [int(message.value()) for message in workspace.messages() if message.partition() == partition]
        assert there == sorted(there)


@EITHER
@pytest.mark.parametrize("variant", VARIANTS)
def test_nulls_empty_texts_and_slices_are_told_apart(workspace: KafkaWorkspace, variant: str, kind: str) -> None:
    keys = ["left out", None, "", "k", "é", None, "left out"]
    values = ["left out", "", None, "v", None, "é", "left out"]
    whole = with_headers({"key": keys, "value": values}, variant)
    assert write(workspace.sink(producer=kind), whole.slice(1, 5))
    found = {(message.key(), message.value()) for message in workspace.messages()}
    assert found == {
        (None if key is None else key.encode(), None if value is None else value.encode())
        for key, value in zip(keys[1:6], values[1:6], strict=True)
    }


@EITHER
@pytest.mark.parametrize("variant", VARIANTS)
def test_columns_without_a_single_byte_are_sent(workspace: KafkaWorkspace, variant: str, kind: str) -> None:
    assert write(
        workspace.sink(producer=kind),
        with_headers({"key": ["", ""], "value": pa.array([None, ""], pa.string())}, variant),
    )
    assert sorted((m.key(), m.value() is None) for m in workspace.messages()) == [(b"", False), (b"", True)]


@EITHER
def test_rows_of_several_topics_keep_their_headers_partitions_and_order(
    workspace: KafkaWorkspace, kafka: Any, kind: str
) -> None:
    other = KafkaWorkspace(kafka, partitions=2)
    count = 400
    names = [(workspace.topic, other.topic)[n % 3 == 0] for n in range(count)]
    batch = pa.record_batch(
        {
            "topic": names,
            "value": [str(n) for n in range(count)],
            "partition": pa.array([n % 2 for n in range(count)], pa.int32()),
            "headers": pa.array(
                [[{"key": "n", "value": str(n).encode()}] if n % 5 else None for n in range(count)], HEADERS
            ),
        }
    )
    assert write(workspace.sink(topic=None, producer=kind), batch)
    for place in (workspace, other):
        for partition in (0, 1):
            there = [message for message in place.messages() if message.partition() == partition]
            wanted = [n for n in range(count) if names[n] == place.topic and n % 2 == partition]
            assert [int(message.value()) for message in there] == wanted
            assert [m.headers() for m in there] == [[("n", str(n).encode())] if n % 5 else None for n in wanted]


@EITHER
def test_a_record_that_no_queue_can_hold_says_so(workspace: KafkaWorkspace, kind: str) -> None:
    sink = workspace.sink(producer=kind, config={"queue.buffering.max.kbytes": 1})
    with pytest.raises(RowsRejected, match=r"row 0 of slot 0 .* larger than all that the client can hold"):
        write(sink, pa.record_batch({"key": ["k"], "value": ["x" * 5_000]}))


@pytest.mark.parametrize(("version", "told"), [(0x020B00FF, "2.11.0"), (0x030000FF, "3.0.0")])
def test_a_library_that_was_never_tried_is_refused(version: int, told: str) -> None:
    """Records are written where the library looks for them."""
    refuse_untried(0x021000FF)
    with pytest.raises(ConfigurationError, match=f"librdkafka {told} was never tried"):
        refuse_untried(version)


@pytest.fixture
def looked_for_anew() -> Iterator[None]:
    """The library is looked for once in a process; here it is once more, and once more afterwards."""
    for cached in (library, why_unusable):
        cached.cache_clear()
    yield
    for cached in (library, why_unusable):
        cached.cache_clear()


@pytest.fixture
def untried(looked_for_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that was never tried."""
    monkeypatch.setattr("onceward.sinks.kafka.library._OLDEST", 0x7F000000)


def test_with_a_library_that_was_never_tried_the_job_is_slower_and_says_so(
    workspace: KafkaWorkspace, untried: None
) -> None:
    """A start logs what `diagnose` finds."""
    sink = workspace.sink(check=True, producer=None)
    assert write(sink, pa.record_batch({"key": ["k"], "value": ["v"]}))
    assert isinstance(sink._session._producer, RecordProducer)
    (found, *_) = sink.diagnose(Workload(slots=1, unpublished_epochs=1))
    assert (found.about, found.severity) == ("producer", Severity.WARNING)
    assert re.fullmatch("records go out one by one, which is slower: librdkafka .* was never tried.*", found.detail)


def test_with_a_library_that_cannot_be_opened_records_go_out_one_by_one(
    workspace: KafkaWorkspace, looked_for_anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library beside it may be missing, or the driver be linked into Python itself."""

    def cannot(path: str) -> None:
        raise OSError("liblz4.so.1: cannot open shared object file")

    monkeypatch.setattr("onceward.sinks.kafka.library.ctypes.CDLL", cannot)
    sink = workspace.sink(check=True, producer=None)
    assert write(sink, pa.record_batch({"key": ["k"], "value": ["v"]}))
    assert isinstance(sink._session._producer, RecordProducer)
    (found, *_) = sink.diagnose(Workload(slots=1, unpublished_epochs=1))
    assert found.severity is Severity.WARNING
    assert found.detail.endswith("cannot be opened: liblz4.so.1: cannot open shared object file")
    with pytest.raises(ConfigurationError, match="cannot be opened") as refused:
        workspace.sink(producer="columns")
    assert refused.value.hint


def test_whoever_insists_on_columns_is_refused_there(workspace: KafkaWorkspace, untried: None) -> None:
    with pytest.raises(ConfigurationError, match="was never tried"):
        workspace.sink(producer="columns")


def test_a_producer_of_another_name_is_refused(workspace: KafkaWorkspace) -> None:
    with pytest.raises(ConfigurationError, match="producer is 'rows'") as refused:
        workspace.sink(producer="rows")
    assert refused.value.hint == "choose one of columns, records, or leave it out"


def test_the_layouts_are_those_of_the_library() -> None:
    assert (MESSAGE.itemsize, PART.itemsize) == (72, 72)
    assert [MESSAGE.fields[name][1] for name in MESSAGE.names] == [0, 24, 32, 40, 48]
    assert [PART.fields[name][1] for name in PART.names] == [0, 8, 16, 8, 8]


@EITHER
def test_only_bytes_are_taken(workspace: KafkaWorkspace, kind: str) -> None:
    """Another type would be copied, and the copy be gone before it is read."""
    producer = client.PRODUCERS[kind](workspace.sink().settings.producer("columns"))
    with pytest.raises(TypeError, match="records are made of binary, not of large_binary"):
        producer.send(workspace.topic, Records(workspace.topic, None, pa.array([b"x"], pa.large_binary())))
    producer.close()


@pytest.mark.parametrize("depth", [1, 3])
def test_a_fatal_error_is_told_though_the_library_goes_on_to_call_back(depth: int) -> None:
    """Seen with confluent-kafka 2.16: each report of a delivery after it is a `SystemError` on top of the last one."""

    class Fenced:
        def flush(self, timeout_s: float) -> int:
            found: Exception = driver.KafkaException(driver.KafkaError(driver.KafkaError._FENCED))
            for _ in range(depth):
                outer = SystemError("<built-in function len> returned a result with an exception set")
                outer.__cause__, found = found, outer
            raise found

    producer = RecordProducer({"bootstrap.servers": "127.0.0.1:1"})
    producer.close()
    producer._made = Fenced()
    with pytest.raises(driver.KafkaException, match="_FENCED"):
        producer.flush(1)
    producer._made = None


@EITHER
def test_a_closed_producer_answers_with_an_error(workspace: KafkaWorkspace, kind: str) -> None:
    producer = client.PRODUCERS[kind](workspace.sink().settings.producer("closed"))
    producer.close()
    producer.close()
    with pytest.raises(driver.KafkaException, match="the producer is closed"):
        producer.begin_transaction()


@EITHER
def test_a_producer_that_is_forgotten_ends_its_threads(workspace: KafkaWorkspace, kind: str) -> None:
    gc.collect()
    before = threads_at_rest()
    sink = workspace.sink(producer=kind)
    assert write(sink, pa.record_batch({"key": ["k"], "value": ["v"]}))
    assert threads_of_the_library() > before
    del sink
    assert threads_at_rest() == before


def threads_at_rest() -> int:
    """Once no more of them end: those of forgotten clients do so by and by."""
    seen: list[int] = []

    def is_same() -> bool:
        seen.append(threads_of_the_library())
        return len(seen) >= 5 and len({*seen[-5:]}) == 1

    until(is_same)
    return seen[-1]


def threads_of_the_library() -> int:
    names = []
    for task in Path("/proc/self/task").iterdir():
        # A thread may end while they are counted.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append((task / "comm").read_text())
    return sum(name.startswith("rdk:") for name in names)


_FORGOTTEN = """
import gc, sys, threading
from onceward.connections.kafka import AdminConnection

forgotten, collected = threading.Event(), threading.Event()

def collect(answer):
    forgotten.wait(30)
    gc.collect()
    collected.set()

def ask():
    connection = AdminConnection({"bootstrap.servers": sys.argv[1]})
    connection.itself = connection
    connection.client.describe_cluster(request_timeout=30).add_done_callback(collect)

ask()
forgotten.set()
assert collected.wait(60)
print("still here", flush=True)
"""


def test_a_client_that_is_garbage_collected_in_its_own_thread_does_not_abort_the_process(kafka: KafkaServer) -> None:
    """It answers in a thread of the library's, and whatever Python code runs there may set off the collector."""
    asked = subprocess.run(
        [sys.executable, "-c", _FORGOTTEN, kafka.bootstrap], capture_output=True, text=True, timeout=120
    )
    assert (asked.returncode, asked.stdout) == (0, "still here\n"), asked.stderr
