"""Scenario 45: how many transactions wait in the targets of a run, and how long, without asking them all the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta

from sink_cases import SMALL

from onceward.contracts import Handle, Outcome, RetryLater
from onceward.epoch import InDoubtSummary, Publisher, PublisherThread, PublishLimits, RunContext
from onceward.epoch.in_doubt import LOOK_EVERY_S
from onceward.identity import JobIdentity
from onceward.recovery import look_at
from onceward.testing import Behaviour, Failed, FakeTwoPhaseSink, Harness, ManualClock, MemoryTarget, SinkUnderTest

WAITS_S = 300.0


class SlowTarget(FakeTwoPhaseSink):
    """Commits nothing until it is time, and does not always answer. Counts how often it is asked what it holds."""

    is_open = True
    answers = True
    asked = 0

    def commit(self, handle: Handle) -> Outcome:
        return super().commit(handle) if self.is_open else RetryLater("not yet", after_s=7.0)

    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        self.asked += 1
        if not self.answers:
            raise ConnectionError("the target does not answer")
        return super().pending(job)


class WatchedClock(ManualClock):
    """Tells at every pause that one was made."""

    on_pause: Callable[[], None] = staticmethod(lambda: None)

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        self.on_pause()


def after_two_decisions(sink: SlowTarget, clock: ManualClock) -> RunContext:
    """Both epochs of the source are staged and decided, and their driver gave up before it could publish one."""
    sink.is_open = False
    harness = Harness(SinkUnderTest(sink, lambda: sink.target.rows), source=SMALL, clock=clock)
    assert isinstance(harness.life(behaviour=Behaviour(publishes=lambda epoch: False)), Failed)
    context, _ = look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=clock,
    )
    return context


def test_before_the_first_look_nothing_is_known() -> None:
    sink, clock = SlowTarget(MemoryTarget()), ManualClock()
    context = after_two_decisions(sink, clock)
    sink.asked = 0
    assert Publisher(context).in_doubt.report() == (InDoubtSummary(sink.name, 0, None, None),)
    assert sink.asked == 0, "a report asks no target"


def test_a_sweep_counts_what_waits_by_the_way_and_not_what_is_settled_since() -> None:
    sink, clock = SlowTarget(MemoryTarget()), ManualClock()
    context = after_two_decisions(sink, clock)
    publisher = Publisher(context)
    sink.asked = 0
    publisher.sweep()
    assert sink.asked == 1, "the reaper's own look is enough"
    (found,) = publisher.in_doubt.report()
    assert (found.transactions, found.looked_at) == (3, clock.now())
    clock.pause(60)
    (later,) = publisher.in_doubt.report()
    assert found.oldest_s is not None
    assert later == replace(found, oldest_s=found.oldest_s + 60), "it is as old as it is, not as old as it was"
    sink.is_open = True
    publisher.publish_decided()
    assert [one.transactions for one in publisher.in_doubt.report()] == [0]


def test_orphans_that_the_sweep_aborts_are_not_counted() -> None:
    sink, clock = SlowTarget(MemoryTarget()), ManualClock()
    harness = Harness(SinkUnderTest(sink, lambda: sink.target.rows), source=SMALL, clock=clock)
    sink.is_open = False
    behaviour = Behaviour(publishes=lambda epoch: False, lost_attempts=lambda epoch, slot: 2)
    assert isinstance(harness.life(behaviour=behaviour), Failed)
    context, _ = look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=clock,
    )
    assert len(sink.target.transactions) == 9
    publisher = Publisher(context)
    publisher.sweep()
    assert [one.transactions for one in publisher.in_doubt.report()] == [len(sink.target.transactions)] == [3]


def test_while_a_delivery_is_repeated_the_age_of_what_waits_is_known_and_grows() -> None:
    sink, clock = SlowTarget(MemoryTarget()), WatchedClock()
    context = after_two_decisions(sink, clock)
    publisher = Publisher(context, PublishLimits(deadline_s=2 * WAITS_S))
    begun, sink.asked = clock.monotonic(), 0
    reports: list[InDoubtSummary] = []

    def look() -> None:
        reports.extend(publisher.in_doubt.report())
        waited = clock.monotonic() - begun
        # The target is away for a while in the middle: what was seen before stays.
        sink.answers = not WAITS_S / 3 < waited < WAITS_S / 2
        sink.is_open = waited > WAITS_S

    clock.on_pause = look
    assert publisher.publish_decided() == 1
    assert WAITS_S / LOOK_EVERY_S / 2 < sink.asked <= WAITS_S / LOOK_EVERY_S + 1, "seldom"
    known = [report for report in reports if report.looked_at is not None]
    assert len(known) > len(reports) / 2
    assert {report.transactions for report in known} == {3}
    ages = [report.oldest_s or 0.0 for report in known]
    assert ages == sorted(ages)
    assert ages[-1] > WAITS_S > ages[0]
    assert [one.transactions for one in publisher.in_doubt.report()] == [0]


def test_a_target_that_says_since_when_it_has_a_transaction_is_believed() -> None:
    class Telling(SlowTarget):
        def pending(self, job: JobIdentity) -> Iterable[Handle]:
            since = (clock.now() - timedelta(hours=2)).isoformat()
            return [{**handle, "since": since} for handle in super().pending(job)]

    sink, clock = Telling(MemoryTarget()), ManualClock()
    publisher = Publisher(after_two_decisions(sink, clock))
    publisher.sweep()
    assert [one.oldest_s for one in publisher.in_doubt.report()] == [7200.0]


def test_a_target_that_does_not_answer_the_last_sweep_does_not_fail_a_run_that_has_published_all() -> None:
    sink = SlowTarget(MemoryTarget())
    context = after_two_decisions(sink, ManualClock())
    sink.is_open, sink.answers = True, False
    publisher = PublisherThread(context)
    publisher.start()
    publisher.close()
    assert context.watermark() == 1
