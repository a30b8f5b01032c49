"""From a target that went back or changed, or receipts that moved, to a job that runs on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from restored_target import Movable
from town import DECIDED, A, B, Town, refused, say

from onceward.admin import propose_accept_loss, propose_epoch_is_published, replay
from onceward.contracts import refuse_change
from onceward.epoch import PublishLimits
from onceward.errors import CheckpointRefused, ReceiptsMoved, TargetChanged, TargetRolledBack
from onceward.identity import SinkName
from onceward.journal import Retention
from onceward.spark.rewind import rewind
from onceward.storage import LocalStorage
from onceward.testing import DiesAt, DirectoryLogs, Failed, FakeTransactionalSink, Harness


def target_went_back(town: Town, *, sinks: tuple[SinkName, ...] = (A, B), **more: Any) -> Harness:
    """Epochs 0 and 1 are settled; then these targets are again what they were after epoch 0."""
    job = town.job(**more)
    job.life(until=0)
    backups = {name: town.targets[name].backup() for name in sinks}
    job.life(until=1)
    for name, backup in backups.items():
        town.targets[name].restore(backup)
    return job


def walk_a_target_that_went_back_then_replay() -> None:
    town = Town()
    limits = PublishLimits(deadline_s=2.0, keep_published=Retention(epochs=10))
    job = target_went_back(town, sinks=(B,), limits=limits)
    refused(job, TargetRolledBack, "sink 'b' lacks epoch 1", "onceward replay FILE")
    assert [(one.epoch, one.rows) for one in replay(town.context(job), limits)] == [(1, 4)]
    for _ in range(2):
        job.drain()
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_a_target_that_went_back_then_accepted() -> None:
    town = Town()
    job = target_went_back(town, sinks=(A,))
    refused(job, TargetRolledBack, "accept-loss FILE 1")
    proposal = propose_accept_loss(town.context(job), epoch=1, sink=A)
    say(job, proposal, "4 rows of epoch 1 in 2 slots in sink 'a' are given up", "no longer misses it")
    town.drained(job)
    assert town.ids(A) == [*range(4), *range(8, 12)]
    assert town.ids(B) == list(range(12))


def walk_a_target_that_went_back_then_filled_by_hand() -> None:
    town = Town()
    job = target_went_back(town, sinks=(A,))
    refused(job, TargetRolledBack, "epoch-is-published FILE 1")
    town.targets[A].rows.extend(dict(row) for row in town.targets[B].rows if row["epoch"] == 1)
    say(job, propose_epoch_is_published(town.context(job), epoch=1, sink=A), "no longer misses it")
    town.drained(job)
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_all_targets_went_back_then_rewind(tmp_path: Path) -> None:
    town = Town()
    parts = {"storage": LocalStorage(tmp_path / "onceward"), "logs": DirectoryLogs(tmp_path)}
    job = target_went_back(town, **parts)
    refused(job, TargetRolledBack, "onceward rewind CHECKPOINT 1 --job FILE --went-back")
    receipts = tuple(receipt for sink in job.sinks for receipt in sink.receipts(town.context(job).job))
    with pytest.raises(CheckpointRefused):
        rewind(tmp_path, 1)
    with pytest.raises(CheckpointRefused):
        rewind(tmp_path, 0, receipts=receipts, went_back=True)
    assert rewind(tmp_path, 1, receipts=receipts, went_back=True) == ["commits/1"]
    town.drained(job)
    assert town.ids(A) == town.ids(B) == list(range(12))


class Moved(Movable):
    at = "schema b"


class Relying(FakeTransactionalSink):
    """Compares what it relies on in each transaction with what its start found."""

    facts: Mapping[str, str] = {"unique indexes": "(id)"}
    known: Mapping[str, str] = {}

    def target_facts(self) -> Mapping[str, str]:
        """As it is now."""
        self.known = self.facts
        return self.facts

    def send_transaction(self, slots: Any, job: Any, checkpoint_id: int, timestamp: Any) -> bool:
        """In the middle of the job somebody adds an index."""
        if checkpoint_id == 1 and not self.target.sent:
            self.target.sent.add(("an index", "is added"))
            self.facts = {"unique indexes": "(id), (name(3))"}
        refuse_change(self.known, self.facts, epoch=checkpoint_id)
        return super().send_transaction(slots, job, checkpoint_id, timestamp)


def walk_target_changed_then_examined_anew() -> None:
    town = Town()
    town.kinds[A] = Relying
    ending = town.job(A).life()
    assert isinstance(ending, Failed)
    assert type(ending.error) is TargetChanged
    assert "(id), (name(3))" in str(ending.error)
    assert "start again" in str(ending.error)
    assert town.ids(A) == list(range(4))
    town.drained(town.job(A))
    assert town.ids(A) == list(range(12))


def receipts_moved(town: Town, **more: Any) -> Harness:
    """Epoch 1 is decided; then the sink is told to keep its receipts elsewhere."""
    town.kinds[A] = Movable
    job = town.job(A, **more)
    job.life(until=0)
    job.life(DiesAt(DECIDED, after=True))
    town.kinds[A] = Moved
    return town.job(A, **more)


def walk_receipts_moved_then_back() -> None:
    town = Town()
    refused(receipts_moved(town), ReceiptsMoved, "schema a", "former setting")
    town.kinds[A] = Movable
    town.job(A).life(until=1)
    town.kinds[A] = Moved
    town.drained(town.job(A))
    assert town.ids(A) == list(range(12))


def walk_receipts_moved_and_the_epoch_is_published() -> None:
    town = Town()
    moved = receipts_moved(town)
    refused(moved, ReceiptsMoved, "epoch-is-published FILE 1")
    town.targets[A].rows.extend({"id": i, "key": i % 3, "epoch": 1} for i in range(4, 8))
    say(moved, propose_epoch_is_published(town.context(moved), epoch=1))
    town.drained(moved)
    assert town.ids(A) == list(range(12))


def walk_receipts_moved_then_computed_again(tmp_path: Path) -> None:
    town = Town()
    moved = receipts_moved(town, storage=LocalStorage(tmp_path / "onceward"), logs=DirectoryLogs(tmp_path))
    refused(moved, ReceiptsMoved, "accept-loss FILE 1", "onceward rewind CHECKPOINT 1")
    say(moved, propose_accept_loss(town.context(moved), epoch=1))
    rewind(tmp_path, 1)
    town.drained(moved)
    assert town.ids(A) == list(range(12))
