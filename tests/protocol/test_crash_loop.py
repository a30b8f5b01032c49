"""Scenario 84: a driver that dies again and again takes one epoch over each time, and in the end it gets through."""

from collections.abc import Callable
from typing import Any

import pytest
from sink_cases import fake

from onceward.contracts import Guarantee
from onceward.epoch import RunContext
from onceward.epoch.takeover import settle_fates, take_over
from onceward.errors import DamagedFile
from onceward.identity import JobIdentity, JobName, RunId, SinkName, TransactionName, new_generation
from onceward.journal import Fate, IdentityFile
from onceward.testing import (
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Faults,
    Harness,
    MemoryStorage,
    PausedAt,
    Source,
)
from onceward.testing.wrappers import FaultyLogs, FaultyStorage, with_faults

KINDS = pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
LOOP = 50_000
AS_WIDE_AS_THE_FIELD_WAS = 36**3
"""The first takeover number that names of the first release had no room for: 46,656."""


def context_of(harness: Harness, run: str = "loopin", faults: Faults | None = None) -> RunContext:
    record, faults = IdentityFile(harness.storage).read(), faults or Faults()
    assert record is not None
    return RunContext(
        job=record.identity,
        run=RunId(run),
        sinks=tuple(with_faults(sink, faults) for sink in harness.sinks),
        guarantee=Guarantee.EXACTLY_ONCE,
        storage=FaultyStorage(harness.storage, faults),
        decisions=FaultyLogs(harness.logs, faults),
        clock=harness.clock,
        adopted=record.adopted,
    )


def test_s84_fifty_thousand_takeovers_end_well_and_leave_no_heap() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=Source(ends=(4, 8)))
    harness.life(DiesAt("log commit 0"))
    context = context_of(harness)
    for _ in range(LOOP):
        assert take_over(context, 0) is not None
    assert len(harness.storage.names("manifests")) <= 3
    for _ in range(3):
        # Whole lives: each stages under a number that has four digits, dies, and is found and aborted by the next.
        harness.life(DiesAt("log commit 0"))
        assert len(harness.storage.names("manifests")) <= 5
    harness.drain()
    assert harness.problems() == []
    assert LOOP > AS_WIDE_AS_THE_FIELD_WAS


def test_the_longest_name_fits_what_xa_takes_and_old_names_are_still_read() -> None:
    job = JobIdentity(JobName("job"), new_generation())
    longest = TransactionName.of(
        job,
        SinkName("sink"),
        epoch=36**7 - 1,
        takeover=36**7 - 1,
        slot=36**4 - 1,
        attempt=36**7 - 1,
        run=RunId("rrrrrr"),
    )
    assert len(str(longest)) == 64
    assert TransactionName.parse(str(longest)) == longest
    first_too_wide = TransactionName.parse("ow1_o62fkhvi_abcdefgh_2mv3fi_7_1000_0_z_runrun")
    assert first_too_wide is not None
    assert first_too_wide.takeover == AS_WIDE_AS_THE_FIELD_WAS
    assert TransactionName.parse("ow1_o62fkhvi_abcdefgh_2mv3fi_7_10000000_0_z_runrun") is None


@KINDS
def test_a_driver_that_listed_the_register_before_it_was_tidied_up_is_fenced(kind: Callable[..., Any]) -> None:
    """It reserves a number that was taken and is gone. What stands above it keeps it from staging and from deciding."""
    harness = Harness(fake(kind), source=Source(ends=(4, 8)))
    harness.life(DiesAt("log commit 0"))

    def others_take_over() -> None:
        for _ in range(5):
            assert take_over(context_of(harness, "others"), 0) is not None

    late = harness.life(PausedAt("storage create manifests/0.1.reserved", others_take_over))
    assert isinstance(late, Failed)
    assert type(late.error).__name__ == "Fenced"
    harness.drain()
    assert harness.problems() == []


@KINDS
def test_a_driver_that_is_paused_while_it_reads_fates_sees_the_takeover_that_removed_them(
    kind: Callable[..., Any],
) -> None:
    """It listed fate 1; takeover 2 removes it before it is read. Without a second look nothing would seem taken."""
    harness = Harness(fake(kind), source=Source(ends=(4, 8)))
    harness.life(DiesAt("log commit 0"))
    context = context_of(harness)
    assert take_over(context, 0) == 1
    files = context.register.files(0)
    paused = PausedAt("storage read manifests/0.1.fate", lambda: take_over(context, 0))
    assert context_of(harness, "paused", paused).register.taken(0, files) == 2


def test_a_publisher_refuses_what_is_open_and_reads_nothing_below_what_is_taken() -> None:
    """A damaged fate that is void must not stop it; one that may count must."""
    harness = Harness(fake(FakeTwoPhaseSink), source=Source(ends=(4,)))
    harness.life(DiesAt("log commit 0"))
    context = context_of(harness)
    for takeover in (1, 2, 3, 4):
        assert context.register.reserve(0, takeover, RunId("aaaaaa"))
    for takeover in (1, 3):
        assert context.register.decide_fate(0, takeover, Fate.TAKEN) is Fate.TAKEN
    storage = harness.storage
    assert isinstance(storage, MemoryStorage)
    storage.files["manifests/0.1.fate"] = b"flipped"
    assert settle_fates(context, 0) == 3
    assert {t: context.register.fate(0, t) for t in (2, 4)} == {2: Fate.REFUSED, 4: Fate.REFUSED}
    storage.files["manifests/0.3.fate"] = b"flipped"
    with pytest.raises(DamagedFile):
        settle_fates(context, 0)


@KINDS
def test_what_a_takeover_makes_void_goes_but_for_the_newest_manifest(kind: Callable[..., Any]) -> None:
    """That one tells a driver which comes too late that another was there, and an at-most-once job that it tried."""
    harness = Harness(fake(kind), source=Source(ends=(4, 8)))
    for _ in range(4):
        harness.life(DiesAt("log commit 0"))
    take_over(context_of(harness), 0)
    assert sorted(harness.storage.names("manifests")) == ["0.3.json", "0.4.fate", "0.4.reserved"]
    harness.drain()
    assert harness.problems() == []
