"""Scenario 95: a fault of one row that looks like a fault of the target; and what a sink relies on in its target."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest
from sink_cases import fake

from onceward.contracts import RejectedRow, SlotValues, TryAgain, refuse_change
from onceward.epoch import PublishLimits
from onceward.errors import PublishFailed, RowsRejected, TargetChanged
from onceward.identity import JobIdentity
from onceward.journal import Register, SettledLog
from onceward.testing import Failed, Finished, Harness, Source
from onceward.testing.fake_sinks import FakeTransactionalSink
from onceward.testing.faults import DiesAt

BAD = 5
LIMITS = PublishLimits(deadline_s=60.0, backoff_s=0.1)


class Picky(FakeTransactionalSink):
    """Its target fails on one row, with an error in no table."""

    error: Exception = RuntimeError("internal error 17")
    finds = True
    asked = 0
    tries = 0

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        self.tries += 1
        if any(row["id"] == BAD for slot in slots for batch in slot.read() for row in batch.to_pylist()):
            raise self.error
        return super().send_transaction(slots, job, checkpoint_id, timestamp)

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        self.asked += 1
        if not self.finds:
            raise RuntimeError("the table is gone")
        return [
            RejectedRow(slot.slot, number, "internal error 17")
            for slot in slots
            for number, row in enumerate(row for batch in slot.read() for row in batch.to_pylist())
            if row["id"] == BAD
        ]


def picky(**traits: Any) -> tuple[Harness, Any]:
    harness = Harness(fake(Picky), source=Source(ends=(8,)), limits=LIMITS)
    sink: Any = harness.subjects[0].sink
    for name, value in traits.items():
        setattr(sink, name, value)
    return harness, sink


def test_s95_a_failure_that_nobody_knows_is_traced_to_its_row_long_before_the_deadline() -> None:
    harness, sink = picky()
    before = harness.clock.monotonic()
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, RowsRejected)
    assert "internal error 17" in ending.error.message
    assert "poison" in (ending.error.hint or "")
    assert sink.tries == 3
    assert harness.clock.monotonic() - before < LIMITS.deadline_s / 10


def test_s95_a_target_that_says_it_is_busy_is_not_suspected_of_anything() -> None:
    harness, sink = picky(error=TryAgain("too many connections"))
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, PublishFailed)
    assert "too many connections" in ending.error.message
    assert "TryAgain" not in ending.error.message
    assert sink.asked == 0


def test_s95_where_no_row_can_be_blamed_the_epoch_is_tried_until_the_deadline() -> None:
    harness, sink = picky(finds=False)
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, PublishFailed)
    assert 1 < sink.asked < sink.tries / 2, "searching costs more than trying: it becomes rare"


class Relying(FakeTransactionalSink):
    """Looks at what it relies on in each transaction."""

    facts: Mapping[str, str] = {"engine": "one with transactions"}
    known: Mapping[str, str] = {}

    def target_facts(self) -> Mapping[str, str]:
        self.known = self.facts
        return self.facts

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        refuse_change(self.known, self.facts, epoch=checkpoint_id)
        return super().send_transaction(slots, job, checkpoint_id, timestamp)


def test_facts_of_the_target_are_kept_in_every_manifest_and_marker() -> None:
    harness = Harness(fake(Relying), source=Source(ends=(4, 8)))
    harness.life(DiesAt("storage create settled/1"))
    manifest = Register(harness.storage).manifest(1, 0)
    marker = SettledLog(harness.storage).marker(0)
    assert manifest is not None
    assert marker is not None
    assert marker.manifest is not None
    for one in (manifest, marker.manifest):
        assert [entry.target for entry in one.sinks.values()] == [{"engine": "one with transactions"}]


def test_a_target_that_changed_stops_the_job_at_once_and_a_start_examines_it_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness(fake(Relying), source=Source(ends=(4, 8)))
    sink: Any = harness.subjects[0].sink
    harness.life(DiesAt("sink transactional send 1"))
    real = Relying.target_facts

    def stays(self: Relying) -> Mapping[str, str]:
        known = real(self)
        self.facts = {"engine": "one without"}
        return known

    sink.target_facts = stays.__get__(sink)
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetChanged)
    assert "engine was one with transactions and is one without" in ending.error.message
    del sink.target_facts
    with caplog.at_level(logging.WARNING, logger="onceward"):
        assert isinstance(harness.life(), Finished)
    assert "since epoch 1 was staged the target has changed: engine was one with transactions" in caplog.text
    assert harness.problems() == []
