"""A checker that cannot fail proves nothing: every broken sink is caught, and the sound one it derives from is not."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from inspect import getmembers, isfunction
from pathlib import Path

import pytest
from sink_cases import fake

from onceward.contracts import AnySink, Sink
from onceward.epoch import PublishLimits
from onceward.testing import (
    Behaviour,
    CrashAt,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Harness,
    MemoryTarget,
    Source,
    audit,
    broken,
)
from onceward.testing.conformance import TransactionalConformance, TwoPhaseConformance

Kind = Callable[[MemoryTarget], AnySink]
THREE_EPOCHS = Source(ends=(4, 8, 12), keys=3)


def found_by_crashes(kind: Kind) -> set[str]:
    """The kinds of trouble that the audit names over a sweep of crashes, with lost attempts and zombies."""
    found: set[str] = set()

    def harness() -> Harness:
        return Harness(fake(kind), source=THREE_EPOCHS, limits=PublishLimits(keep_receipts=0, reap_every=1))

    behaviour = Behaviour(lost_attempts=lambda epoch, slot: slot, leaves_zombie=lambda epoch, slot: slot == 0)
    whole = CrashAt()
    harness().life(whole, behaviour)
    for point in range(whole.points + 1):
        history = harness()
        history.life(CrashAt(point), behaviour)
        early = {row["epoch"] for row in history.subjects[0].read()} - set(range(history.logs.decided() + 1))
        found |= {"early"} if early else set()
        history.release_zombies()
        try:
            history.drain()
        except AssertionError:
            found.add("stuck")
            continue
        result = next(iter(history.audits().values()))
        found |= {k for k in ("missing", "duplicate", "foreign", "disordered", "mixed") if getattr(result, k)}
        found |= {"leftover"} if history.leftovers() else set()
    return found


@pytest.mark.parametrize(
    ("kind", "trouble"),
    [
        (FakeTwoPhaseSink, set()),
        (FakeTransactionalSink, set()),
        (broken.CommitsBeforeDecision, {"early", "duplicate"}),
        (broken.KeepsNoReceipt, {"duplicate"}),
        (broken.ForgetsItsReceipts, {"duplicate"}),
        (broken.SkipsAbort, {"leftover"}),
        (broken.SwapsEpochs, {"disordered", "missing"}),
        (broken.DuplicatesABatch, {"duplicate"}),
        (broken.DropsASlot, {"missing"}),
        (broken.MixesAttempts, {"duplicate", "mixed"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_the_audit_sees_what_is_wrong(kind: Kind, trouble: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Looking back for receipts, the job itself would stop some of them before the audit sees anything.
    monkeypatch.setattr(Sink, "keeps_receipts", False)
    found = found_by_crashes(kind)
    assert trouble <= found if trouble else not found


@pytest.mark.parametrize("kind", [broken.KeepsNoReceipt, broken.SwapsEpochs, broken.DropsASlot])
def test_a_job_that_looks_back_stops_by_itself(kind: Kind) -> None:
    assert "stuck" in found_by_crashes(kind)


@pytest.mark.parametrize(
    "kind",
    [
        broken.CommitsBeforeDecision,
        broken.ForgetsItsReceipts,
        broken.SkipsAbort,
        broken.AbortRemovesCommitted,
        broken.DuplicatesABatch,
        broken.ClaimsSuccess,
        broken.TouchesOthers,
        broken.MixesAttempts,
        broken.KeepsNoReceipt,
        broken.SwapsEpochs,
        broken.DropsASlot,
        broken.PrunesWithoutWatermark,
        broken.ReceiptsOfNobody,
        broken.TakesAnyReceipt,
    ],
)
def test_the_conformance_suite_refuses(kind: type) -> None:
    assert failures(kind)


@pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
def test_the_conformance_suite_accepts_what_is_sound(kind: type) -> None:
    assert failures(kind) == []


def failures(kind: type) -> list[str]:
    """The tests of the suite that fail for a sink; run by hand, one target each."""
    suite = TwoPhaseConformance if issubclass(kind, FakeTwoPhaseSink) else TransactionalConformance

    class Applied(suite):
        def __init__(self) -> None:
            self.target = MemoryTarget()

        def make_sink(self, name: str = "sink") -> AnySink:
            sink: AnySink = kind(self.target, name=name)
            return sink

        def read_rows(self) -> list[dict[str, object]]:
            return self.target.rows

    failed = []
    for name, _ in getmembers(Applied, isfunction):
        if name.startswith("test_"):
            try:
                getattr(Applied(), name)()
            except AssertionError:
                failed.append(name)
    return failed


def row(number: int, *, key: int = 0, epoch: int = 0, version: str = "v", attempt: int = 1) -> dict[str, object]:
    return {"id": number, "key": key, "epoch": epoch, "slot": 0, "version": version, "attempt": attempt}


def test_the_audit_accepts_every_row_once() -> None:
    result = audit([row(0), row(1)], range(2))
    assert result.exactly_once
    assert str(result) == "2 rows in the target, 2 in the source; every row once, in order"


def test_the_audit_names_missing_duplicate_and_foreign_rows() -> None:
    result = audit([row(0), row(0), row(7)], range(3))
    assert (result.missing, result.duplicate, result.foreign) == ((1, 2), (0,), (7,))
    assert not result.at_least_once
    assert not result.at_most_once
    assert str(result) == ("3 rows in the target, 3 in the source; missing: 2 (1, 2); duplicate: 1 (0); foreign: 1 (7)")


def test_the_audit_judges_order_within_a_key_only() -> None:
    assert audit([row(1, key=1), row(0)], range(2)).exactly_once
    assert audit([row(1), row(0)], range(2)).disordered == (0,)
    assert audit([row(1), row(0)], range(2), ordered=False).exactly_once


def test_the_audit_names_an_epoch_of_two_computations_or_attempts() -> None:
    assert audit([row(0), row(1, version="w")], range(2)).mixed == (0,)
    assert audit([row(0), row(1, attempt=2)], range(2)).mixed == (0,)


def test_a_sink_that_fails_the_suite_is_told_what_was_expected_and_what_was_found(tmp_path: Path) -> None:
    """As a user's pytest prints it, with nothing registered by hand."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_blind.py").write_text(
        "from onceward.testing import FakeTwoPhaseSink, MemoryTarget\n"
        "from onceward.testing.conformance import TwoPhaseConformance\n"
        "class TestBlind(TwoPhaseConformance):\n"
        "    target = MemoryTarget()\n"
        "    def make_sink(self, name='blind'):\n"
        "        return FakeTwoPhaseSink(self.target, name=name)\n"
        "    def read_rows(self):\n"
        "        return []\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "test_blind.py"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=alone)
    assert done.returncode == 1
    assert re.search(r"^E +assert \[\] == \[1, 3\]", done.stdout, re.MULTILINE), done.stdout[-2000:]
