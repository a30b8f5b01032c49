"""A target that is again what it was some epochs ago, and the ways to ask a checkpoint about it."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sink_cases import fake

from onceward.epoch import PublishLimits
from onceward.errors import TargetRolledBack
from onceward.journal import Retention
from onceward.recovery.start import look_at
from onceward.testing import Failed, FakeSlotwiseSink, FakeTransactionalSink, Harness, MemoryTarget, Source

SOURCE = Source(ends=(4, 8, 12, 16), keys=3)
KEEPING = PublishLimits(deadline_s=2.0, keep_published=Retention(epochs=100))
AT = datetime(2026, 1, 1, tzinfo=UTC)
in_log = pytest.mark.parametrize("kind", [FakeTransactionalSink, FakeSlotwiseSink], ids=lambda kind: kind.__name__)


def target_of(harness: Harness) -> MemoryTarget:
    return harness.subjects[0].sink.target


def went_back(kind: Callable[..., object], *, to: int = 1, limits: PublishLimits | None = None) -> Harness:
    """Three epochs are published; then the target is again what it was after epoch `to`."""
    harness = Harness(fake(kind), source=SOURCE, limits=limits)
    harness.life(until=to)
    backup = target_of(harness).backup()
    harness.life(until=2)
    target_of(harness).restore(backup)
    return harness


def refusal(harness: Harness) -> TargetRolledBack:
    ending = harness.life()
    assert isinstance(ending, Failed), ending
    assert isinstance(ending.error, TargetRolledBack), ending
    return ending.error


def context_of(harness: Harness):
    context, _ = look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )
    return context


class Movable(FakeTransactionalSink):
    """Its receipts stand where it is told."""

    at = "schema a"

    def receipts_at(self) -> str:
        return self.at
