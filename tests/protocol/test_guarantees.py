"""The same crashes see loss with at-most-once, duplicates with at-least-once, and neither with exactly-once."""

from collections.abc import Callable

import pytest
from sink_cases import fake

from onceward.contracts import AnySink, Guarantee
from onceward.testing import (
    Audit,
    CrashAt,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    Harness,
    Source,
)

KINDS = [FakeTwoPhaseSink, FakeTransactionalSink, FakeWriteAheadSink]


def audits_of_all_crashes(kind: Callable[..., AnySink], guarantee: Guarantee) -> list[Audit]:
    """One audit for a crash at every point of the job."""

    def harness() -> Harness:
        return Harness(fake(kind), source=Source(ends=(4, 4, 8)), guarantee=guarantee, rows_in_a_batch=1)

    whole = CrashAt()
    calm = harness()
    calm.life(whole)
    assert calm.problems() == []
    assert next(iter(calm.audits().values())).exactly_once, "without a crash every guarantee delivers all, once"
    found = []
    for point in range(whole.points):
        history = harness()
        history.life(CrashAt(point))
        history.drain()
        assert history.problems() == [], f"point {point}: {history.trace}"
        found.append(next(iter(history.audits().values())))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_at_most_once_loses_and_never_duplicates(kind: Callable[..., AnySink]) -> None:
    found = audits_of_all_crashes(kind, Guarantee.AT_MOST_ONCE)
    assert any(result.missing for result in found)
    assert not any(result.duplicate for result in found)


@pytest.mark.parametrize("kind", KINDS)
def test_at_least_once_duplicates_and_never_loses(kind: Callable[..., AnySink]) -> None:
    found = audits_of_all_crashes(kind, Guarantee.AT_LEAST_ONCE)
    assert any(result.duplicate for result in found)
    assert not any(result.missing for result in found)


@pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
def test_exactly_once_does_neither(kind: Callable[..., AnySink]) -> None:
    assert all(result.exactly_once for result in audits_of_all_crashes(kind, Guarantee.EXACTLY_ONCE))
