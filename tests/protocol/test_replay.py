"""What a target lacks is published again from segments that were kept, and how long they are kept: scenario 78."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from restored_target import AT, KEEPING, SOURCE, context_of, in_log, refusal, target_of, went_back
from sink_cases import fake

from onceward.admin import plan_replay, replay
from onceward.epoch import PublishLimits
from onceward.errors import ConfigurationError, TargetRolledBack
from onceward.identity import Fingerprint
from onceward.journal import Marker, Retention
from onceward.recovery.start import look_at
from onceward.testing import CrashAt, DiesAt, FakeTransactionalSink, Harness, Source
from onceward.testing.sweep import distinct


def test_s78_older_epochs_are_not_replayed_over_newer_ones_unless_that_is_asked_for() -> None:
    harness = Harness(replace(fake(FakeTransactionalSink), ordered=False), source=SOURCE, limits=KEEPING)
    harness.life(until=0)
    backup = target_of(harness).backup()
    harness.life(until=1)

    class Restored(DiesAt):
        """Without any failure, while epoch 2 is staged."""

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("storage open_new wal/2"):
                target_of(harness).restore(backup)
            return call()

    harness.life(Restored("never"), until=2)
    refusal(harness)
    with pytest.raises(ConfigurationError, match="lacks epoch 1 and has epoch 2"):
        replay(context_of(harness))
    assert [one.epoch for one in replay(context_of(harness), out_of_order=True)] == [1]
    harness.limits = PublishLimits(deadline_s=2.0)
    harness.drain()
    assert harness.problems() == []


@in_log
@pytest.mark.parametrize("to", [0, 1])
def test_s78_replay_publishes_exactly_what_the_target_lacks(kind: Callable[..., object], to: int) -> None:
    harness = went_back(kind, to=to, limits=KEEPING)
    error = refusal(harness)
    assert "onceward replay" in str(error.hint)
    lacking = list(range(to + 1, 3))
    assert [one.epoch for one in plan_replay(context_of(harness))] == lacking
    assert sorted({one.epoch for one in replay(context_of(harness))}) == lacking
    assert plan_replay(context_of(harness)) == []
    harness.limits = PublishLimits(deadline_s=2.0)
    harness.drain()
    assert harness.problems() == []


@in_log
def test_s78_a_replay_that_crashes_anywhere_is_given_again(kind: Callable[..., object]) -> None:
    from onceward.testing.wrappers import FaultyStorage, with_faults

    def crashing(harness: Harness, faults: CrashAt) -> None:
        context, _ = look_at(
            sinks=tuple(with_faults(sink, faults) for sink in harness.sinks),
            storage=FaultyStorage(harness.storage, faults),
            decisions=harness.logs,
            directory_id=harness.directory_id,
            clock=harness.clock,
        )
        replay(context)

    counting = CrashAt()
    crashing(went_back(kind, to=0, limits=KEEPING), counting)
    assert counting.points
    for point in distinct(counting.points):
        harness = went_back(kind, to=0, limits=KEEPING)
        with pytest.raises(BaseException, match=r"before|after"):
            crashing(harness, CrashAt(point))
        replay(context_of(harness))
        harness.limits = PublishLimits(deadline_s=2.0)
        harness.drain()
        assert harness.problems() == []


def test_s78_without_kept_segments_replay_says_from_where_spark_can_be_rewound() -> None:
    harness = went_back(FakeTransactionalSink)
    with pytest.raises(TargetRolledBack, match="lacks epoch 2") as raised:
        plan_replay(context_of(harness))
    assert "onceward rewind CHECKPOINT 2" in str(raised.value.hint)


def test_segments_are_kept_as_long_as_is_asked_and_no_longer() -> None:
    limits = PublishLimits(deadline_s=2.0, reap_every=1, keep_published=Retention(epochs=2))
    harness = Harness(fake(FakeTransactionalSink), source=SOURCE, limits=limits)
    harness.drain()
    assert context_of(harness).kept.epochs() == {2, 3}
    assert sorted(harness.storage.names("wal")) == ["2", "3"]
    harness.limits = PublishLimits(deadline_s=2.0)
    harness.drain()
    assert harness.problems() == []


@pytest.mark.parametrize("point", range(0, 140, 2))
def test_a_crash_at_any_point_while_segments_are_kept(point: int) -> None:
    limits = PublishLimits(deadline_s=2.0, reap_every=1, keep_published=Retention(epochs=1))
    harness = Harness(fake(FakeTransactionalSink), source=Source(ends=(4, 8), keys=3), limits=limits)
    harness.life(CrashAt(point))
    harness.drain()
    assert context_of(harness).kept.epochs() == {1}
    assert sorted(harness.storage.names("wal")) == ["1"]
    harness.limits = PublishLimits(deadline_s=2.0)
    harness.drain()
    assert harness.problems() == []


MARKER = Marker(0, Fingerprint("x"), AT, {})


def test_retention_by_time_and_by_number() -> None:
    by_time, by_number = Retention(epochs=None, seconds=60), Retention(epochs=3)
    assert not by_time.is_over(MARKER, newer=1000, now=AT + timedelta(seconds=60))
    assert by_time.is_over(MARKER, newer=0, now=AT + timedelta(seconds=61))
    assert not by_number.is_over(MARKER, newer=2, now=AT + timedelta(days=9))
    assert by_number.is_over(MARKER, newer=3, now=AT)
    assert not Retention().keeps_any


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (0, Retention()),
        (7, Retention(epochs=7)),
        ("24 hours", Retention(None, 86400.0)),
        ("1 day", Retention(None, 86400.0)),
    ],
)
def test_keep_published_is_a_number_of_epochs_or_a_time(text: str | int, wanted: Retention) -> None:
    assert Retention.parse(text) == wanted


@pytest.mark.parametrize("text", ["soon", "-1 hours", "hours", -1, True, "5"])
def test_keep_published_that_is_neither_is_refused(text: str | int) -> None:
    with pytest.raises(ConfigurationError, match="keep_published"):
        Retention.parse(text)
