"""The guarantee changes between two starts: an epoch in flight is finished as it was begun, every other one is new."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import permutations

import pytest
from sink_cases import fake

from onceward.contracts import AnySink, Guarantee
from onceward.identity import Generation, JobName, SinkName
from onceward.journal import IdentityFile, IdentityRecord, SettledLog
from onceward.recovery.identify import _promised
from onceward.testing import (
    CrashAt,
    Crashed,
    DiesAt,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    Harness,
    MemoryLogs,
    Source,
)
from onceward.testing.sweep import distinct
from pair_sample import PairSample

Kind = Callable[..., AnySink]
EXACTLY, LEAST, MOST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE


def changes() -> Iterator[tuple[Kind, Guarantee, Guarantee]]:
    """All six, for each template that can give both."""
    for kind in (FakeTwoPhaseSink, FakeTransactionalSink, FakeWriteAheadSink):
        for before, after in permutations((EXACTLY, LEAST, MOST), 2):
            if kind is not FakeWriteAheadSink or EXACTLY not in (before, after):
                yield kind, before, after


CHANGES = pytest.mark.parametrize(("kind", "before", "after"), list(changes()))


def world(kind: Kind, guarantee: Guarantee) -> Harness:
    return Harness(fake(kind), source=Source(ends=(4, 8, 12)), guarantee=guarantee, rows_in_a_batch=1)


def newest(harness: Harness) -> int:
    """Of the epochs that were begun so far."""
    assert isinstance(harness.logs, MemoryLogs)
    return max(harness.logs.planned(), harness.logs.decided())


def live(harness: Harness, guarantee: Guarantee, point: int | None = None) -> CrashAt:
    harness.guarantee = guarantee
    faults = CrashAt(point)
    ending = harness.life(faults)
    assert point is None or isinstance(ending, Crashed), harness.trace
    return faults


def judge(harness: Harness, borders: list[tuple[int, Guarantee]], in_flight: set[int]) -> None:
    """Each epoch by the guarantee that it was begun under; those that no crash met, exactly once whatever was asked."""
    (subject,) = harness.subjects
    rows = subject.read()
    counts = Counter(row["id"] for row in rows)
    for epoch in range(len(harness.source.ends)):
        guarantee = next(guarantee for border, guarantee in borders if epoch <= border)
        if epoch not in in_flight:
            guarantee = EXACTLY
        seen = [counts[number] for number in harness.source.rows_of(epoch)]
        kept = {
            EXACTLY: all(count == 1 for count in seen),
            LEAST: all(count >= 1 for count in seen),
            MOST: all(count <= 1 for count in seen),
        }[guarantee]
        assert kept, f"epoch {epoch}, begun {guarantee.value}: {seen}\n" + "\n".join(harness.trace)
        if guarantee is EXACTLY:
            versions = {row["version"] for row in rows if row["epoch"] == epoch}
            assert len(versions) <= 1, f"epoch {epoch} is from two computations"
    assert harness.leftovers() == []


@CHANGES
def test_s86_a_change_after_a_crash_at_any_point(kind: Kind, before: Guarantee, after: Guarantee) -> None:
    met = set()
    for point in range(live(world(kind, before), before).points):
        harness = world(kind, before)
        live(harness, before, point)
        border = newest(harness)
        met.add(border)
        live(harness, after)
        judge(harness, [(border, before), (99, after)], {border})
    assert met >= {0, 1, 2}, "a crash hit every epoch"


@CHANGES
def test_s86_a_second_crash_and_a_change_back(
    kind: Kind, before: Guarantee, after: Guarantee, pair_sample: PairSample
) -> None:
    """The second change comes while the epoch of the first may still be in flight."""
    points = distinct(live(world(kind, before), before).points)
    for number, first in enumerate(pair_sample.firsts(points)):
        harness = world(kind, before)
        live(harness, before, first)
        again = distinct(live(harness, after).points)
        for second in again[number % 5 :: 5]:
            harness = world(kind, before)
            live(harness, before, first)
            borders = [(newest(harness), before)]
            live(harness, after, second)
            borders.append((newest(harness), after))
            live(harness, before)
            judge(harness, [*borders, (99, before)], {border for border, _ in borders})


def test_s86_what_was_attempted_at_most_once_is_not_sent_again() -> None:
    """The four rows that a change to exactly-once used to double, and those that the way back used to lose."""
    for before, after in ((MOST, EXACTLY), (EXACTLY, MOST)):
        found = []
        for point in range(live(world(FakeTwoPhaseSink, before), before).points):
            harness = world(FakeTwoPhaseSink, before)
            live(harness, before, point)
            live(harness, after)
            found.append(next(iter(harness.audits().values())))
        assert not any(result.duplicate for result in found)
        assert any(result.missing for result in found) is (before is MOST)


def test_s86_the_marker_tells_the_guarantee_of_its_own_epoch() -> None:
    harness = world(FakeTwoPhaseSink, MOST)
    harness.life(DiesAt("sink two-phase commit"))
    live(harness, EXACTLY)
    settled = SettledLog(harness.storage)
    told = [marker.sinks[SinkName("two-phase")].guarantee for n in range(3) if (marker := settled.marker(n))]
    assert told == ["at-most-once", "exactly-once", "exactly-once"]


@pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
def test_s86_a_checkpoint_of_the_first_release_says_nothing_and_its_manifests_speak(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its identity has no guarantee. An attempt that was announced is known by its manifest, and is not repeated."""
    for point in range(live(world(kind, MOST), MOST).points):
        harness = world(kind, MOST)
        with monkeypatch.context() as patched:
            patched.setattr("onceward.recovery.identify._promised", lambda record, wanted, newest: record)
            live(harness, MOST, point)
        record = IdentityFile(harness.storage).read()
        assert record is None or record.guarantee is None
        border = newest(harness)
        live(harness, EXACTLY)
        judge(harness, [(border, MOST), (99, EXACTLY)], {border})
        record = IdentityFile(harness.storage).read()
        assert record is not None
        assert record.guarantee is EXACTLY


def test_s86_the_change_is_told_and_written_down(caplog: pytest.LogCaptureFixture) -> None:
    harness = world(FakeTwoPhaseSink, MOST)
    live(harness, MOST)
    with caplog.at_level(logging.WARNING, logger="onceward"):
        live(harness, EXACTLY)
    assert "from at-most-once to exactly-once with epoch 3" in caplog.text
    record = IdentityFile(harness.storage).read()
    assert record is not None
    assert (record.number, record.guarantee, record.since, record.before) == (1, EXACTLY, 3, MOST)
    assert (record.guarantee_of(2), record.guarantee_of(3)) == (MOST, EXACTLY)
    live(harness, EXACTLY)
    assert IdentityFile(harness.storage).read() == record, "nothing changed since"


def record(guarantee: Guarantee | None, since: int, before: Guarantee | None) -> IdentityRecord:
    return IdentityRecord(
        1, JobName("job"), Generation("aaaaaaaa"), (), -1, "here", guarantee=guarantee, since=since, before=before
    )


@pytest.mark.parametrize(
    ("stands", "wanted", "newest", "then"),
    [
        pytest.param((None, 0, None), EXACTLY, 6, (EXACTLY, 7, None), id="of the first release"),
        pytest.param((EXACTLY, 3, MOST), EXACTLY, 6, (EXACTLY, 3, MOST), id="nothing changed"),
        pytest.param((EXACTLY, 3, MOST), LEAST, 6, (LEAST, 7, EXACTLY), id="changed"),
        pytest.param((EXACTLY, 7, MOST), LEAST, 6, (LEAST, 7, MOST), id="changed again, the epoch still in flight"),
        pytest.param((EXACTLY, 7, MOST), MOST, 6, (MOST, 7, MOST), id="changed back, the epoch still in flight"),
        pytest.param((EXACTLY, 9, MOST), EXACTLY, 4, (EXACTLY, 5, MOST), id="rewound below the change"),
    ],
)
def test_s86_an_epoch_in_flight_keeps_its_guarantee_however_often_it_is_changed(
    stands: tuple[Guarantee | None, int, Guarantee | None],
    wanted: Guarantee,
    newest: int,
    then: tuple[Guarantee, int, Guarantee | None],
) -> None:
    assert _promised(record(*stands), wanted, newest=newest) == record(*then)
