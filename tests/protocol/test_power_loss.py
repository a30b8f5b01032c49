"""Power loss: what a driver has not synced is empty or gone afterwards, and still each row arrives once.

Scenario 74. Spark forces neither of its logs to the disk; onceward does, and repairs what is torn all the same.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from sink_cases import SMALL, fake

from onceward.contracts import Log
from onceward.recovery.repair import Drop, DropList, Known, PutBack, Repair, plan_repairs
from onceward.testing import (
    CrashAt,
    DiesAt,
    DirectoryLogs,
    FakeSlotwiseSink,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Harness,
    MemoryLogs,
    MemoryStorage,
)
from onceward.testing.engine import COMMITS_ENTRY
from onceward.testing.fakes import Loss, Unsynced
from onceward.testing.sweep import Sweep
from pair_sample import PairSample

KINDS = (FakeTwoPhaseSink, FakeTransactionalSink, FakeSlotwiseSink)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def at_random() -> Loss:
    rng = Random(20261116)
    return lambda: rng.choice(list(Unsynced))


LOSSES: dict[str, Callable[[], Loss]] = {
    "empty": lambda: lambda: Unsynced.EMPTY,
    "gone": lambda: lambda: Unsynced.GONE,
    "at random": at_random,
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def harness(kind: Callable[..., object]) -> Harness:
    return Harness(fake(kind), source=SMALL, storage=MemoryStorage(), logs=MemoryLogs(), rows_in_a_batch=1)


@each_kind
@each_loss
def test_s74_power_lost_at_any_point(
    kind: Callable[..., object], loss: Callable[[], Loss], record_sweep: list[str]
) -> None:
    points = Sweep(lambda: harness(kind), loss=loss()).points()
    record_sweep.append(f"power loss, {kind.__name__}: {points} points")


@each_kind
@each_loss
def test_s74_power_lost_again_during_the_recovery_from_a_power_loss(
    kind: Callable[..., object], loss: Callable[[], Loss], pair_sample: PairSample, record_sweep: list[str]
) -> None:
    points, pairs = pair_sample.of(Sweep(lambda: harness(kind), loss=loss()))
    record_sweep.append(f"power loss, {kind.__name__}: {points} points, {pairs} ordered pairs, {pair_sample}")


def test_s74_a_torn_barrier_and_a_torn_decision_under_a_published_epoch_are_put_back() -> None:
    """As an ext4 without syncs was found: both log entries of 0 bytes, the settled marker whole."""
    world = harness(FakeTwoPhaseSink)
    assert isinstance(world.logs, MemoryLogs)
    world.drain()
    offsets, commits = dict(world.logs.offsets), dict(world.logs.commits)
    world.logs.offsets[1] = world.logs.commits[1] = ""
    world.drain()
    assert (world.logs.offsets, world.logs.commits) == (offsets, commits)
    assert world.problems() == []


def test_s74_a_barrier_that_was_cut_short_is_put_back() -> None:
    world = harness(FakeTwoPhaseSink)
    assert isinstance(world.logs, MemoryLogs)
    world.life(DiesAt("log commit 1"))
    whole = world.logs.offsets[1]
    world.logs.offsets[1] = ""
    world.drain()
    assert world.logs.offsets[1] == whole
    assert world.problems() == []


def test_s74_an_epoch_whose_decision_is_torn_and_was_not_acted_on_runs_again() -> None:
    world = harness(FakeTwoPhaseSink)
    assert isinstance(world.logs, MemoryLogs)
    world.life(DiesAt("log sync_decision 0"))
    world.logs.commits[0] = ""
    world.drain()
    assert world.problems() == []
    assert {row["version"] for row in world.subjects[0].read() if row["epoch"] == 0} == {"life-2.1"}


def test_s74_nothing_is_published_before_its_decision_is_on_the_disk() -> None:
    world = harness(FakeTransactionalSink)
    faults = DiesAt("sink transactional send 0")
    world.life(faults)
    assert faults.trace.index("log sync_decision 0") < faults.trace.index("sink transactional send 0")


def test_s74_no_manifest_stands_before_its_barrier_is_on_the_disk() -> None:
    world = harness(FakeTransactionalSink)
    faults = CrashAt()
    world.life(faults)
    for epoch in (0, 1):
        assert faults.trace.index(f"log sync_barrier {epoch}") < faults.trace.index(
            f"storage create manifests/{epoch}.0.json"
        )


C, O = Log.COMMITS, Log.OFFSETS  # noqa: E741
W = COMMITS_ENTRY
PLANS: dict[str, tuple[dict[int, str | None], dict[int, str | None], dict[int, Known], list[Repair]]] = {
    "whole": ({0: "a", 1: "b"}, {0: W}, {0: Known("a", W), 1: Known("b")}, []),
    "torn decision, settled": ({0: "a"}, {0: None}, {0: Known("a", W)}, [PutBack(C, 0, W)]),
    "torn decision, staged": ({0: "a"}, {0: None}, {0: Known("a")}, [Drop(C, 0)]),
    "torn decision, next barrier planned": (
        {0: "a", 1: "b"},
        {0: None},
        {0: Known("a")},
        [Drop(O, 1, "b"), Drop(C, 0)],
    ),
    "torn decision, next epoch staged": ({0: "a", 1: "b"}, {0: None}, {0: Known("a"), 1: Known("b")}, [Drop(C, 0)]),
    "torn decision below a whole one": ({0: "a", 1: "b"}, {0: None, 1: W}, {}, [Drop(C, 0)]),
    "torn barrier, never staged": ({0: "a", 1: None}, {0: W}, {0: Known("a", W)}, [Drop(O, 1)]),
    "torn barrier, staged": ({0: None}, {}, {0: Known("a")}, [PutBack(O, 0, "a")]),
    "cut barrier, staged": ({0: "v1\n{}"}, {}, {0: Known("v1\n{}\n5")}, [PutBack(O, 0, "v1\n{}\n5")]),
    "another barrier is not cut": ({0: "v1\n{}\n6"}, {}, {0: Known("v1\n{}\n5")}, []),
    "torn barrier under a decision that nobody knows": ({0: None}, {0: W}, {}, []),
    "torn barrier and decision, settled": (
        {0: None},
        {0: None},
        {0: Known("a", W)},
        [PutBack(O, 0, "a"), PutBack(C, 0, W)],
    ),
    "lost barrier under a decision": (
        {0: "a"},
        {0: W, 1: W},
        {0: Known("a", W), 1: Known("b", W)},
        [PutBack(O, 1, "b")],
    ),
    "rolled back together": ({0: "a"}, {0: W}, {0: Known("a", W), 1: Known("b", W)}, []),
}


def test_s74_a_torn_list_of_a_source_takes_the_barrier_with_it_that_was_never_staged() -> None:
    lists = {"sources/0/1": False}
    offsets: dict[int, str | None] = {0: "a", 1: "b"}
    staged = {0: Known("a", W), 1: Known("b")}
    assert plan_repairs(offsets, {0: W}, {0: Known("a", W)}, lists) == [Drop(O, 1, "b"), DropList("sources/0/1", 1)]
    assert plan_repairs({0: "a", 1: None}, {0: W}, {}, lists) == [Drop(O, 1), DropList("sources/0/1", 1)]
    assert plan_repairs({0: "a"}, {0: W}, {}, lists) == []
    assert plan_repairs({0: "a"}, {0: W}, {}, {"sources/0/1": True}) == [DropList("sources/0/1", 0)]
    assert plan_repairs(offsets, {0: W}, staged, lists) == []
    assert plan_repairs(offsets, {0: W}, staged, {"sources/0/2": True}) == [DropList("sources/0/2", 1)]


def test_s74_a_list_that_no_barrier_refers_to_yet_is_told_by_its_number(tmp_path: Path) -> None:
    """Spark writes the list of epoch 1 before it plans epoch 1."""
    logs = DirectoryLogs(tmp_path)
    logs.plan(0, 'v1\n{"batchTimestampMs":0}\n{"logOffset":0}')
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_text("v1")
    assert logs.torn_lists() == {}
    # As Kafka's source writes where it began, so that older releases of Spark stumble over it.
    (tmp_path / "sources" / "0" / "0").write_bytes(b'\0v1\n{"views":{"0":0}}')
    assert logs.torn_lists() == {}
    (tmp_path / "sources" / "0" / "1").write_bytes(b"\0" * 512)
    assert logs.torn_lists() == {"sources/0/1": True}
    (tmp_path / "sources" / "0" / "1").unlink()
    (tmp_path / "sources" / "0" / "0").write_text("")
    assert logs.torn_lists() == {"sources/0/0": False}


@pytest.mark.parametrize("name", PLANS)
def test_s74_repairs(name: str) -> None:
    offsets, commits, known, wanted = PLANS[name]
    assert plan_repairs(offsets, commits, known) == wanted
