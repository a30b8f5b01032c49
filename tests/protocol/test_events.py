"""Whoever listens is told what happens to each epoch, in order, and cannot change it."""

from __future__ import annotations

import logging

import pytest

from onceward.contracts.events import Begun, Decided, Delivered, Event, PreCommitted, Settled, Staged
from onceward.testing import (
    Behaviour,
    CrashAt,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Finished,
    Harness,
    MemoryTarget,
    SinkUnderTest,
    Source,
)


def world() -> Harness:
    one, two = MemoryTarget(), MemoryTarget()
    return Harness(
        SinkUnderTest(FakeTwoPhaseSink(one), lambda: one.rows),
        SinkUnderTest(FakeTransactionalSink(two), lambda: two.rows),
        source=Source(ends=(4, 6), keys=2),
    )


def test_an_epoch_is_told_from_its_beginning_to_its_end() -> None:
    told: list[Event] = []
    assert world().life(behaviour=Behaviour(listeners=(told.append,))) == Finished()
    for epoch, rows in ((0, 4), (1, 2)):
        events = [event for event in told if event.epoch == epoch]
        assert [type(event) for event in events] == [
            Begun, Staged, PreCommitted, Decided, Delivered, Delivered, Settled,
        ]  # fmt: skip
        staged, delivered, settled = events[1], events[4:6], events[6]
        assert isinstance(staged, Staged)
        assert isinstance(settled, Settled)
        assert sum(slot.rows for slot in staged.slots) == rows
        assert all(slot.bytes > 0 and slot.acked_at is not None for slot in staged.slots if slot.rows)
        assert [one.rows for one in delivered if isinstance(one, Delivered)] == [rows, rows]
        assert set(settled.rows.values()) == {rows}


def test_what_recovery_publishes_is_told_too() -> None:
    harness = world()
    first: list[Event] = []
    point = 0
    while not any(isinstance(event, Decided) for event in first) or any(isinstance(e, Settled) for e in first):
        point += 1
        harness, first = world(), []
        harness.life(CrashAt(point), Behaviour(listeners=(first.append,)))
        assert point < 500
    told: list[Event] = []
    assert harness.life(behaviour=Behaviour(listeners=(told.append,))) == Finished()
    assert [type(event) for event in told if event.epoch == 0][-1] is Settled
    assert not harness.problems()


def test_a_listener_that_fails_is_warned_of_and_the_epoch_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: Event) -> None:
        raise RuntimeError("no")

    caplog.set_level(logging.WARNING, logger="onceward")
    harness = world()
    assert harness.life(behaviour=Behaviour(listeners=(fail,))) == Finished()
    assert "a listener failed in epoch 0" in caplog.text
    assert not harness.problems()
