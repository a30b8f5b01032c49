"""What happens when an epoch is published: the marker, what goes after it, and what the reaper may take."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from lone_driver import Watched, context_of, job, publisher_of

from onceward.epoch import PublishLimits, orphans, pending_transactions
from onceward.identity import Fingerprint, RunId
from onceward.journal import Fate, Marker, Register, SettledLog
from onceward.journal.settled import KEPT
from onceward.testing import Behaviour, CrashAt, DiesAt, FakeTransactionalSink, FakeTwoPhaseSink, Finished, Harness
from onceward.testing.engine import COMMITS_ENTRY
from onceward.testing.fakes import MemoryStorage
from onceward.testing.wrappers import FaultyStorage

KINDS = pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
Kind = Callable[..., Any]


@KINDS
def test_the_marker_is_written_before_anything_is_removed_and_after_everything_is_delivered(kind: Kind) -> None:
    harness = job(kind, ends=(4,))
    watched = Watched()
    assert isinstance(harness.life(watched), Finished)
    delivered = "sink two-phase commit" if kind is FakeTwoPhaseSink else "sink transactional send"
    marked = watched.first("storage create settled/0")
    assert watched.first(delivered) < marked
    for removal in ("storage delete wal/0", "storage delete manifests/0.0.json"):
        assert marked < watched.first(removal)


def marker(epoch: int) -> Marker:
    return Marker(epoch, Fingerprint("ffffffffffffffff"), datetime(2026, 1, 1, tzinfo=UTC), {})


def test_the_highest_marker_counts_and_only_the_oldest_are_let_go() -> None:
    log = SettledLog(MemoryStorage())
    for epoch in range(KEPT + 10):
        log.mark(marker(epoch))
        assert log.watermark() == epoch
    assert log.epochs() == list(range(10, KEPT + 10))


def test_manifests_are_forgotten_before_the_fates_that_void_them() -> None:
    """The other way round, a crash would leave a manifest that counts again."""
    storage = MemoryStorage()
    for name in ("3.0.json", "3.1.json", "3.1.reserved", "3.1.fate"):
        storage.create(f"manifests/{name}", b"")
    watched = Watched()
    Register(FaultyStorage(storage, watched)).forget(3)
    kinds = [what.rpartition(".")[2] for what in watched.trace if what.startswith("storage delete")]
    assert kinds == ["json", "json", "reserved", "fate"]
    assert storage.files == {}


# --- the reaper -----------------------------------------------------------------------------------


def staged(kind: Kind) -> Harness:
    """Epoch 0 is staged twice, by an attempt that was lost and by the one that its manifest names; undecided."""
    harness = job(kind, ends=(4,))
    harness.life(DiesAt("log commit 0"), Behaviour(lost_attempts=lambda epoch, slot: 1 if slot == 0 else 0))
    assert len(list(pending_transactions(context_of(harness)))) == 3
    return harness


def reaped(harness: Harness) -> int:
    return len(orphans(context_of(harness)))


@KINDS
def test_the_reaper_takes_nothing_of_an_undecided_epoch(kind: Kind) -> None:
    assert reaped(staged(kind)) == 0


@KINDS
def test_the_reaper_takes_what_the_manifest_of_a_decided_epoch_does_not_name(kind: Kind) -> None:
    harness = staged(kind)
    harness.logs.commit(0, COMMITS_ENTRY)
    manifest = Register(harness.storage).manifest(0, 0)
    assert manifest is not None
    found = orphans(context_of(harness))
    assert [str(orphan.name) in manifest.transactions() for orphan in found] == [False]


@KINDS
def test_the_reaper_takes_nothing_of_a_decided_epoch_without_a_manifest(kind: Kind) -> None:
    harness = staged(kind)
    harness.storage.delete("manifests/0.0.json")
    harness.logs.commit(0, COMMITS_ENTRY)
    assert reaped(harness) == 0


@KINDS
def test_the_reaper_takes_nothing_while_a_takeovers_fate_is_open(kind: Kind) -> None:
    harness = staged(kind)
    harness.logs.commit(0, COMMITS_ENTRY)
    register = Register(harness.storage)
    register.reserve(0, 1, RunId("bbbbbb"))
    assert reaped(harness) == 0
    register.decide_fate(0, 1, Fate.REFUSED)
    assert reaped(harness) == 1


@pytest.mark.parametrize("marker_is", ["gone", "damaged"])
def test_the_reaper_takes_nothing_of_a_settled_epoch_whose_marker_tells_nothing(marker_is: str) -> None:
    harness = staged(FakeTwoPhaseSink)
    harness.logs.commit(0, COMMITS_ENTRY)
    SettledLog(harness.storage).mark(marker(1))
    if marker_is == "damaged":
        harness.storage.create("settled/0", b"torn")
    assert reaped(harness) == 0
    harness.storage.delete("settled/0")
    SettledLog(harness.storage).mark(marker(0))
    assert reaped(harness) == 3, "the marker names none of them"


# --- the sweep ------------------------------------------------------------------------------------


@KINDS
def test_receipts_of_the_newest_epochs_are_kept(kind: Kind) -> None:
    limits = PublishLimits(keep_receipts=3, reap_every=1)
    harness = job(kind, ends=tuple(range(4, 36, 4)), limits=limits)
    harness.drain()
    receipts = harness.sinks[0].receipts(context_of(harness).job)
    assert {receipt.epoch for receipt in receipts} == {4, 5, 6, 7}


@KINDS
def test_what_a_crash_kept_from_being_removed_is_removed_by_a_sweep(kind: Kind) -> None:
    harness = job(kind, ends=(4,))
    harness.life(DiesAt("storage delete manifests/0.0.json"))
    assert harness.storage.names("manifests")
    publisher_of(harness).sweep()
    assert harness.leftovers() == []


@KINDS
def test_a_crash_at_any_point_of_settling_leaves_rubbish_and_never_a_gap(kind: Kind) -> None:
    calm = CrashAt()
    job(kind, ends=(4,)).life(calm)
    for point in range(calm.points):
        harness = job(kind, ends=(4,))
        harness.life(CrashAt(point))
        harness.drain()
        assert harness.problems() == []
