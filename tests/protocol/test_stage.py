"""One task attempt: what it leaves behind when it fails, when it has no rows, and under which name."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from lone_driver import Watched, context_of, job, plan, stage

from onceward.contracts import Guarantee
from onceward.epoch import Coordinator, EpochAssignment, pending_transactions, stage_slot
from onceward.errors import DamagedFile
from onceward.identity import IMMEDIATE, Generation, JobIdentity, JobName
from onceward.testing import DiesAt, FakeTransactionalSink, FakeTwoPhaseSink, Faults, Harness
from onceward.testing.engine import SCHEMA
from onceward.wal import SegmentStore, read_segment

ROW = pa.RecordBatch.from_pylist(
    [{"id": 0, "key": 0, "epoch": 0, "slot": 0, "version": "v", "attempt": 1}], schema=SCHEMA
)


def begun(harness: Harness, faults: Faults | None = None) -> EpochAssignment:
    plan(harness)
    order = Coordinator(context_of(harness, faults=faults)).begin(0)
    assert order is not None
    return order


def rows_and_then_a_failure() -> Iterator[pa.RecordBatch]:
    yield ROW
    raise ArithmeticError("the query failed")


def test_an_attempt_that_fails_leaves_nothing_in_any_sink() -> None:
    harness = job(FakeTwoPhaseSink, FakeTransactionalSink)
    with pytest.raises(ArithmeticError):
        stage_slot(begun(harness), slot=0, attempt=1, batches=rows_and_then_a_failure())
    assert list(pending_transactions(context_of(harness))) == []


def test_what_fails_while_a_failed_attempt_is_discarded_does_not_hide_the_cause() -> None:
    class CannotDiscard(FakeTwoPhaseSink):
        def discard(self, transaction: Any) -> None:
            raise ConnectionError("gone")

    harness = job(CannotDiscard, FakeTransactionalSink)
    with pytest.raises(ArithmeticError):
        stage_slot(begun(harness), slot=0, attempt=1, batches=rows_and_then_a_failure())
    left = {found.sink for found in pending_transactions(context_of(harness))}
    assert left == {"two-phase"}, "the other sink was let go all the same"


@pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
def test_a_slot_of_empty_batches_begins_nothing(kind: Callable[..., Any]) -> None:
    harness = job(kind)
    ack = stage_slot(begun(harness), slot=0, attempt=1, batches=[ROW.slice(0, 0), ROW.slice(0, 0)])
    assert (ack.rows, ack.staged) == (0, ())
    assert list(pending_transactions(context_of(harness))) == []


def test_a_segment_is_closed_before_its_handle_is_given_out() -> None:
    """Closing makes it durable."""
    harness = job(FakeTransactionalSink)
    watched = Watched()
    stage_slot(begun(harness, watched), slot=0, attempt=1, batches=[ROW])
    assert watched.first("storage close wal/0/") > watched.first("storage write wal/0/")


def test_output_that_goes_before_the_decision_does_not_bear_the_epochs_fingerprint() -> None:
    """Half of an epoch that was delivered straight, and a crash: it must not be taken for a decided one."""
    harness = job(FakeTwoPhaseSink, guarantee=Guarantee.AT_LEAST_ONCE)
    order = begun(harness)
    assert order.context(harness.sinks[0].name, 0, 0).fingerprint == IMMEDIATE
    harness = job(FakeTwoPhaseSink, guarantee=Guarantee.AT_LEAST_ONCE)
    harness.life(DiesAt("sink two-phase commit", after=True))
    assert harness.subjects[0].read(), "one slot went out"
    harness.drain()
    assert harness.problems() == []


def test_the_log_lists_the_segments_of_this_job_and_generation_only() -> None:
    harness = job(FakeTransactionalSink)
    order = begun(harness)
    stage(order, harness)
    mine = JobIdentity(order.job.name, order.job.generation)
    store = SegmentStore(harness.storage)
    assert len(list(store.pending(mine))) == 2
    assert list(store.pending(JobIdentity(mine.name, Generation("bbbbbbbb")))) == []
    assert list(store.pending(JobIdentity(JobName("another"), mine.generation))) == []


@pytest.mark.parametrize("folder", ["../wal/0", "wal/zero", "wal/0/..", "/wal/0", ""])
def test_a_segment_is_read_from_the_log_and_from_nowhere_else(folder: str) -> None:
    """The manifest may come from elsewhere, with a checksum that is right."""
    harness = job(FakeTransactionalSink)
    (ack, _) = stage(begun(harness), harness)
    handle = dict(ack.staged[0].handle)
    assert list(read_segment(harness.storage, handle))
    name = str(handle["segment"]).rpartition("/")[2]
    moved = f"{folder}/{name}"
    harness.storage.create(moved, harness.storage.read(str(handle["segment"])) or b"")
    with pytest.raises(DamagedFile, match="as a segment"):
        list(read_segment(harness.storage, {**handle, "segment": moved}))
