"""In the target, and from hostile hands: scenarios 22, 52, 54, 56 and 72 of docs/scenarios.md, each by its number."""

import ast
import logging
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sink_cases import fake, sqlite

import onceward
from onceward.contracts import Handle, Outcome, Receipt, RetryLater
from onceward.epoch import PublishLimits
from onceward.errors import DamagedFile, OutputLost, TargetChanged, TargetUnavailable
from onceward.identity import JobIdentity
from onceward.journal import seal, unseal
from onceward.spark.rewind import rewind
from onceward.storage import LocalStorage
from onceward.testing import (
    Behaviour,
    Crashed,
    DiesAt,
    DirectoryLogs,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Harness,
    ManualClock,
    MemoryStorage,
    MemoryTarget,
    SinkUnderTest,
    Source,
    TargetError,
)

PACKAGE = Path(onceward.__file__).parent
LAZY = Behaviour(publishes=lambda epoch: False)


def failed_with(harness: Harness, kind: type[Exception], behaviour: Behaviour | None = None) -> Any:
    ending = harness.life(behaviour=behaviour)
    assert isinstance(ending, Failed), ending
    assert isinstance(ending.error, kind), ending
    return ending.error


def finished_cleanly(harness: Harness) -> None:
    harness.drain()
    assert harness.problems() == []


def visible(harness: Harness) -> list[int]:
    return sorted(row["id"] for row in harness.subjects[0].read())


class Forgetful(FakeTwoPhaseSink):
    """Keeps a pre-committed transaction for a minute, and is down."""

    transaction_timeout_s = 60.0

    def commit(self, handle: Handle) -> Outcome:
        return RetryLater("restarting", after_s=1.0)


def test_s22_a_transaction_that_times_out_is_warned_about_and_then_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="onceward")
    clock = ManualClock()
    harness = Harness(fake(Forgetful), source=Source(ends=(4,)), clock=clock, limits=PublishLimits(deadline_s=3600.0))
    error = failed_with(harness, OutputLost, LAZY)
    assert (error.epoch, error.sink, error.exit_code) == (0, "two-phase", 1)
    assert "onceward rewind" in str(error.hint)
    assert 60 <= clock.monotonic() <= 62
    warnings = [record.getMessage() for record in caplog.records if "time out at 60 s" in record.getMessage()]
    assert "49 s old" in warnings[0], "at four fifths of the time-out"
    assert visible(harness) == []


def test_s52_a_prepared_transaction_that_the_target_lost_is_noticed_named_and_replayable(workshop: Path) -> None:
    subject = fake(FakeTwoPhaseSink)
    target = subject.sink.target
    harness = Harness(
        subject,
        source=Source(ends=(4, 8, 12)),
        storage=LocalStorage(workshop / "onceward"),
        logs=DirectoryLogs(workshop),
    )
    assert isinstance(harness.life(DiesAt("log plan 2"), Behaviour(publishes=lambda epoch: epoch == 0)), Crashed)
    target.transactions.clear()
    error = failed_with(harness, OutputLost)
    assert (error.epoch, error.sink) == (1, "two-phase")
    assert "onceward rewind CHECKPOINT 1" in str(error.hint)
    assert visible(harness) == [0, 1, 2, 3]
    assert rewind(workshop, 1) == ["commits/1"]
    finished_cleanly(harness)


class Denied(FakeTwoPhaseSink):
    """The user may stage and commit; what only recovery needs is not allowed."""

    forbidden = ""

    def _ask(self, operation: str) -> None:
        if operation == self.forbidden:
            raise TargetError(f"permission denied for {operation}")

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        self._ask("receipts")
        return super().receipts(job)

    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        self._ask("pending")
        return super().pending(job)

    def abort(self, handle: Handle) -> None:
        self._ask("abort")
        super().abort(handle)


@pytest.mark.parametrize("operation", ["receipts", "pending", "abort"])
def test_s54_a_permission_missing_only_for_recovery_stops_the_start_and_harms_nothing(operation: str) -> None:
    harness = Harness(fake(Denied), source=Source(ends=(4, 8)))
    assert isinstance(harness.life(DiesAt("log commit 1")), Crashed)
    sink: Any = harness.sinks[0]
    sink.forbidden = operation
    before = visible(harness), dict(sink.target.transactions), harness.logs.decided()
    for _ in range(2):
        error = failed_with(harness, TargetUnavailable)
        assert f"permission denied for {operation}" in str(error)
        assert (visible(harness), sink.target.transactions, harness.logs.decided()) == before
    sink.forbidden = ""
    finished_cleanly(harness)


def test_s56_a_table_changed_while_running_keeps_the_epoch_waiting_and_whole(workshop: Path) -> None:
    harness = Harness(sqlite(workshop), source=Source(ends=(4, 8)))
    assert isinstance(harness.life(DiesAt("log plan 1")), Crashed)
    before = visible(harness)

    def change(statement: str) -> None:
        with closing(sqlite3.connect(workshop / "rows.db", isolation_level=None)) as database:
            database.execute(statement)

    change('ALTER TABLE rows RENAME COLUMN "key" TO "was_key"')
    error = failed_with(harness, TargetChanged)
    assert "was_key" in str(error)
    assert error.epoch == 1
    assert visible(harness) == before == [0, 1, 2, 3]
    change('ALTER TABLE rows RENAME COLUMN "was_key" TO "key"')
    finished_cleanly(harness)


@pytest.mark.parametrize(
    "path",
    ["../../../etc/passwd", "/etc/passwd", "wal/0/../../identity.json", "identity.json", "wal/0/x.arrow", ""],
)
def test_s72_a_manifest_that_points_elsewhere_is_refused_though_its_checksum_is_right(path: str) -> None:
    storage = MemoryStorage()
    harness = Harness(fake(FakeTransactionalSink), source=Source(ends=(4,)), storage=storage)
    assert isinstance(harness.life(DiesAt("sink transactional send")), Crashed)
    (name,) = (name for name in storage.files if name.startswith("manifests/"))
    whole = storage.files[name]
    document = unseal("manifest", whole, path=name)
    for slot in document["sinks"]["transactional"]["slots"]:
        slot[2]["segment"] = path
    storage.files[name] = seal("manifest", document)
    assert "as a segment" in str(failed_with(harness, DamagedFile))
    assert visible(harness) == []
    storage.files[name] = whole
    finished_cleanly(harness)


def called_or_imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {name.name.partition(".")[0] for name in names}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module.partition(".")[0], *(name.name for name in names)}
            case ast.Call(func=ast.Name(id=name)):
                found.add(name)
    return found


@pytest.mark.parametrize("folder", ["journal", "wal", "storage", "epoch", "recovery", "committers", "sinks", "observe"])
def test_s72_nothing_that_reads_stored_state_can_execute_it(folder: str) -> None:
    executes = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "eval", "exec", "compile", "__import__"}
    modules = sorted((PACKAGE / folder).rglob("*.py"))
    assert modules
    offenders = {path.name: called_or_imported(ast.parse(path.read_text())) & executes for path in modules}
    assert not {name: words for name, words in offenders.items() if words}


def test_s72_the_search_for_what_executes_can_find_it() -> None:
    find: Callable[[str], set[str]] = lambda text: called_or_imported(ast.parse(text))  # noqa: E731
    assert "cloudpickle" in find("from pyspark import cloudpickle")
    assert "pickle" in find("import pickle")
    assert "eval" in find("eval('1')")


def test_a_target_that_does_not_answer_during_a_sweep_does_not_stop_the_run() -> None:
    class Deaf(FakeTwoPhaseSink):
        """Answers at the start and at the end, and not when it is asked in between what it holds."""

        asked = 0

        def pending(self, job):
            Deaf.asked += 1
            if 2 < Deaf.asked < 6:
                raise ConnectionError("gone")
            return super().pending(job)

    target = MemoryTarget()
    limits = PublishLimits(reap_every=1)
    harness = Harness(SinkUnderTest(Deaf(target), lambda: target.rows), source=Source(ends=(2, 4, 6)), limits=limits)
    harness.drain()
    assert Deaf.asked > 5
    assert not harness.problems()
