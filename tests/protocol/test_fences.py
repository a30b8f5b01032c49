"""Who may work on an epoch: each condition that stops a driver, by itself; and the order of a takeover's steps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from lone_driver import Watched, context_of, job, plan, stage

from onceward.contracts import Hooks
from onceward.epoch import Coordinator, EpochAssignment, RunContext, pending_transactions
from onceward.epoch.takeover import settle_fates, take_over
from onceward.errors import CheckpointRolledBack, DamagedFile, EpochLost, Fenced
from onceward.identity import Fingerprint, RunId
from onceward.journal import Fate, Register
from onceward.recovery import Accept
from onceward.testing import Behaviour, DiesAt, FakeTransactionalSink, FakeTwoPhaseSink, Faults, Harness, PausedAt
from onceward.testing.engine import COMMITS_ENTRY

KINDS = pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
Kind = Callable[..., Any]


def begun(context: RunContext, **options: Any) -> tuple[Coordinator, EpochAssignment]:
    coordinator = Coordinator(context, **options)
    order = coordinator.begin(0)
    assert order is not None
    return coordinator, order


# --- before an epoch is staged ------------------------------------------------------------------


def settled_and_undecided(harness: Harness) -> None:
    harness.life(until=0)
    harness.logs.forget_commit(0)


def decided(harness: Harness) -> None:
    plan(harness)
    harness.logs.commit(0, COMMITS_ENTRY)


def taken_over(harness: Harness) -> None:
    plan(harness)
    register = Register(harness.storage)
    register.reserve(0, 1, RunId("bbbbbb"))
    register.decide_fate(0, 1, Fate.TAKEN)


def staged_by_another(harness: Harness) -> None:
    plan(harness)
    coordinator, order = begun(context_of(harness, run="bbbbbb"))
    coordinator.pre_commit(order, stage(order, harness))


@KINDS
@pytest.mark.parametrize(
    "by", [settled_and_undecided, decided, taken_over, staged_by_another], ids=lambda by: by.__name__
)
def test_an_epoch_that_another_driver_has_is_not_begun(kind: Kind, by: Callable[[Harness], None]) -> None:
    harness = job(kind)
    by(harness)
    begins: list[int] = []
    context = replace(context_of(harness), hooks=Hooks(on_begin=begins.append))
    with pytest.raises(Fenced):
        Coordinator(context).begin(0)
    assert begins == []


@KINDS
def test_a_published_epoch_passes_only_with_the_barrier_that_it_was_published_with(kind: Kind) -> None:
    """Its decision was forgotten, the engine runs it again; meanwhile another driver planned other rows for it."""
    harness = job(kind)
    settled_and_undecided(harness)
    barrier = harness.logs.barrier(0)
    assert barrier is not None
    coordinator = Coordinator(context_of(harness), published={0: barrier.fingerprint})
    assert coordinator.begin(0) is None
    plan(harness, end=3)
    with pytest.raises(CheckpointRolledBack, match="changed under a published epoch"):
        coordinator.begin(0)


@KINDS
def test_the_re_run_of_a_published_epoch_with_other_rows_ends_the_life_of_its_driver(kind: Kind) -> None:
    harness = job(kind)
    settled_and_undecided(harness)
    seen = [row["id"] for row in harness.subjects[0].read()]
    ending = harness.life(PausedAt("log is_committed 0", lambda: plan(harness, end=3)))
    assert isinstance(getattr(ending, "error", None), CheckpointRolledBack)
    assert [row["id"] for row in harness.subjects[0].read()] == seen


@KINDS
def test_a_barrier_that_was_purged_is_another_drivers_progress_and_one_that_never_was_is_a_loss(kind: Kind) -> None:
    harness = job(kind, ends=(4, 8, 12), keep_entries=1)
    harness.drain()
    assert harness.logs.barrier(0) is None
    with pytest.raises(Fenced):
        Coordinator(context_of(harness)).begin(0)
    with pytest.raises(EpochLost, match="checkpointLocation"):
        Coordinator(context_of(harness)).begin(7)


# --- before its manifest counts -----------------------------------------------------------------


@KINDS
def test_a_driver_whose_epoch_was_finished_by_another_meanwhile_writes_no_manifest(kind: Kind) -> None:
    """Settling freed the manifest's name, so that its creation alone would not fail."""
    harness = job(kind)
    plan(harness)
    coordinator, order = begun(context_of(harness))
    acks = stage(order, harness)
    harness.drain(Behaviour(accepted=frozenset({Accept.ADOPT})))
    with pytest.raises(Fenced):
        coordinator.pre_commit(order, acks)
    assert harness.storage.names("manifests") == []


@KINDS
def test_of_two_drivers_that_create_one_manifest_the_loser_stops(kind: Kind) -> None:
    """Both began the epoch before either had a manifest; the other's arrives between our last look and our create."""
    harness = job(kind)
    plan(harness)
    other = DiesAt("storage create manifests/0.0.json")
    first, first_order = begun(context_of(harness, run="bbbbbb", faults=other))
    acks_of_other = stage(first_order, harness, version="other")
    with pytest.raises(BaseException, match=r"manifests/0\.0"):
        first.pre_commit(first_order, acks_of_other)
    faults = PausedAt("storage create manifests/0.0.json", lambda: other.arrive())
    coordinator, order = begun(context_of(harness, faults=faults))
    with pytest.raises(Fenced):
        coordinator.pre_commit(order, stage(order, harness))
    standing = Register(harness.storage).manifest(0, 0)
    assert standing is not None
    assert standing.run == "bbbbbb"


@KINDS
def test_a_takeover_that_was_fixed_while_the_manifest_was_written_stops_its_driver(kind: Kind) -> None:
    harness = job(kind)
    plan(harness)
    faults = PausedAt("storage create manifests/0.0.json", lambda: taken_over(harness))
    coordinator, order = begun(context_of(harness, faults=faults))
    with pytest.raises(Fenced):
        coordinator.pre_commit(order, stage(order, harness))


@KINDS
def test_a_driver_whose_epoch_failed_aborts_what_it_staged_itself_and_nothing_else(kind: Kind) -> None:
    harness = job(kind)
    plan(harness)
    ours, others = (begun(context_of(harness, run=run)) for run in ("aaaaaa", "bbbbbb"))
    stage(ours[1], harness, attempt=1)
    stage(others[1], harness, attempt=2)
    ours[0].abort(ours[1])
    assert {found.name.run for found in pending_transactions(context_of(harness))} == {"bbbbbb"}


def test_a_manifest_under_the_name_of_another_epoch_is_refused() -> None:
    harness = job(FakeTwoPhaseSink)
    staged_by_another(harness)
    data = harness.storage.read("manifests/0.0.json")
    assert data is not None
    for name in ("1.0", "0.1"):
        harness.storage.create(f"manifests/{name}.json", data)
        with pytest.raises(DamagedFile, match="holds the manifest of epoch 0"):
            Register(harness.storage).manifest(*map(int, name.split(".")))


# --- taking over --------------------------------------------------------------------------------


def left_behind(kind: Kind) -> Harness:
    """Epoch 0 is staged, and its driver died before it was decided."""
    harness = job(kind)
    harness.life(DiesAt("log commit 0"))
    return harness


@KINDS
def test_a_taker_aborts_what_was_staged_before_it_and_nothing_afterwards(kind: Kind) -> None:
    harness = left_behind(kind)
    watched = Watched()
    context = context_of(harness, faults=watched)
    assert list(pending_transactions(context_of(harness)))
    assert take_over(context, 0) == 1
    assert list(pending_transactions(context_of(harness))) == []
    aborts = "sink two-phase abort" if kind is FakeTwoPhaseSink else "storage delete wal"
    assert watched.first("storage create manifests/0.1.fate") < watched.first(aborts)


@KINDS
def test_a_taker_that_finds_the_epoch_decided_after_its_reservation_leaves_it_at_that(kind: Kind) -> None:
    harness = left_behind(kind)
    faults = PausedAt("storage create manifests/0.1.reserved", lambda: harness.logs.commit(0, COMMITS_ENTRY))
    assert take_over(context_of(harness, faults=faults), 0) is None
    files = Register(harness.storage).files(0)
    assert (files.reserved, files.fates, files.manifests) == ({1}, set(), {0})
    harness.drain()
    assert harness.problems() == []


@KINDS
def test_every_taker_has_a_number_of_its_own_above_all_others(kind: Kind) -> None:
    harness = left_behind(kind)
    assert take_over(context_of(harness, run="aaaaaa"), 0) == 1
    assert take_over(context_of(harness, run="bbbbbb"), 0) == 2

    def another_one_reserves() -> None:
        assert Register(harness.storage).reserve(0, 3, RunId("cccccc"))

    faults: Faults = PausedAt("storage create manifests/0.3.reserved", another_one_reserves)
    assert take_over(context_of(harness, run="dddddd", faults=faults), 0) == 4


@KINDS
def test_a_taker_whose_takeover_was_refused_writes_and_aborts_nothing(kind: Kind) -> None:
    """It reserved and read the log; then the zombie decided, and whoever publishes closed the reservation."""
    harness = left_behind(kind)

    def decided_and_refused() -> None:
        harness.logs.commit(0, COMMITS_ENTRY)
        assert settle_fates(context_of(harness, run="cccccc"), 0) == 0

    watched = PausedAt("storage create manifests/0.1.fate", decided_and_refused)
    before = {str(found.name) for found in pending_transactions(context_of(harness))}
    assert take_over(context_of(harness, faults=watched), 0) is None
    assert Register(harness.storage).files(0).manifests == {0}
    assert {str(found.name) for found in pending_transactions(context_of(harness))} == before


@KINDS
def test_whoever_publishes_refuses_the_reservations_that_are_open(kind: Kind) -> None:
    """Otherwise a taker could still make void what is being published."""
    harness = left_behind(kind)
    register = Register(harness.storage)
    register.reserve(0, 1, RunId("bbbbbb"))
    harness.logs.commit(0, COMMITS_ENTRY)
    assert settle_fates(context_of(harness), 0) == 0
    assert register.fate(0, 1) is Fate.REFUSED
    assert register.decide_fate(0, 1, Fate.TAKEN) is Fate.REFUSED


def test_fingerprints_are_compared_and_not_their_absence() -> None:
    """Guards the tests above: two plans of one epoch do differ."""
    harness = job(FakeTwoPhaseSink)
    found: set[Fingerprint] = set()
    for end in (4, 3):
        plan(harness, end=end)
        barrier = harness.logs.barrier(0)
        assert barrier is not None
        found.add(barrier.fingerprint)
    assert len(found) == 2
