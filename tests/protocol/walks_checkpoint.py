"""From a checkpoint that is not the one the target knows, through what a person says, to a job that runs on."""

from copy import deepcopy
from pathlib import Path

import pytest
from town import DECIDED, A, B, Town, refused, say

from onceward.admin import propose_epoch_is_published
from onceward.errors import (
    CheckpointCopied,
    CheckpointRefused,
    CheckpointReplaced,
    CheckpointRolledBack,
    CheckpointUnknown,
)
from onceward.recovery import Accept
from onceward.spark.rewind import rewind
from onceward.storage import LocalStorage
from onceward.testing import Behaviour, DiesAt, DirectoryLogs, Harness, MemoryLogs, MemoryStorage


def walk_unknown_then_adopt() -> None:
    town = Town()
    town.decided_and_unpublished()
    lost = town.job(storage=MemoryStorage())
    refused(lost, CheckpointUnknown, "sink 'a' has no receipt of epoch 1", "'adopt'")
    lost.drain(Behaviour(accepted=frozenset({Accept.ADOPT})))
    town.drained(lost)
    assert town.ids(A) == town.ids(B) == [*range(4), *range(8, 12)]


def walk_replaced_then_fresh_start() -> None:
    town = Town()
    town.harness.drain()
    again = town.job(storage=MemoryStorage(), logs=MemoryLogs())
    refused(again, CheckpointReplaced, "'fresh-start'")
    again.drain(Behaviour(accepted=frozenset({Accept.FRESH_START})))
    town.drained(again)
    assert town.ids(A) == town.ids(B) == sorted([*range(12)] * 2)


def walk_copied_then_copy() -> None:
    town = Town()
    town.harness.life(until=0)
    copy = town.job(storage=deepcopy(town.storage), logs=deepcopy(town.logs), directory_id="elsewhere")
    refused(copy, CheckpointCopied, "'copy'")
    copy.drain(Behaviour(accepted=frozenset({Accept.COPY})))
    town.drained(copy)
    assert town.ids(A) == town.ids(B) == list(range(12))


def snapshot_put_back(town: Town, *, published: bool = True) -> Harness:
    """Taken while epoch 1 was being staged; then it was decided and published (in A at least), and lost again."""
    town.harness.life(until=0)
    town.harness.life(DiesAt("storage create manifests/1.0.json"))
    snapshot = {"storage": deepcopy(town.storage), "logs": deepcopy(town.logs)}
    town.harness.life(DiesAt("storage create settled/1" if published else "sink b send 1"))
    return town.job(**snapshot)


def walk_rolled_back_in_place_then_the_epoch_is_published() -> None:
    """Scenario 82: no flag helped, though the target has it all."""
    town = Town()
    back = snapshot_put_back(town)
    refused(back, CheckpointRolledBack, "output of epoch 1", "epoch-is-published FILE 1")
    proposal = propose_epoch_is_published(town.context(back), epoch=1)
    say(back, proposal, "every row of epoch 1 counts as being in every sink", "consumed and staged nowhere")
    town.drained(back)
    assert town.ids(A) == town.ids(B) == list(range(12)), "each row once"


def walk_rolled_back_in_place_and_one_sink_is_published() -> None:
    town = Town()
    back = snapshot_put_back(town, published=False)
    refused(back, CheckpointRolledBack, "sink 'b' has none of it")
    proposal = propose_epoch_is_published(town.context(back), epoch=1, sink=A)
    say(back, proposal, "Spark computes it again, and sink 'a' is left out of it")
    town.drained(back)
    assert town.ids(A) == town.ids(B) == list(range(12)), "each row once"


def walk_rolled_back_in_place_then_rollback() -> None:
    town = Town()
    back = snapshot_put_back(town)
    error = refused(back, CheckpointRolledBack, "'rollback'")
    assert "a second time" in error.hint
    back.drain(Behaviour(accepted=frozenset({Accept.ROLLBACK})))
    town.drained(back)
    assert town.ids(A) == town.ids(B) == sorted([*range(12), *range(4, 8)])


def walk_settled_with_other_rows_then_rollback() -> None:
    """An accepted rollback was refused again at each start."""
    town = Town()
    town.harness.life(until=1)
    town.logs.forget_commit(1)
    town.logs.plan(1, town.logs.offsets[1].replace('{"end": 8}', '{"end": 6}'))
    back = town.job(ends=(4, 6, 10))
    refused(back, CheckpointRolledBack, "covers other source rows")
    back.drain(Behaviour(accepted=frozenset({Accept.ROLLBACK})))
    town.drained(back)
    assert town.ids(A) == town.ids(B) == sorted([*range(8), 4, 5, *range(6, 10)])


def walk_a_manifest_of_other_rows_then_rewind(tmp_path: Path) -> None:
    """The checkpoint was put together from two: what is staged is not what Spark's log has."""
    logs = DirectoryLogs(tmp_path)
    town = Town()
    job = town.job(storage=LocalStorage(tmp_path / "onceward"), logs=logs, ends=(4, 6, 10))
    job.life(until=0)
    job.life(DiesAt(DECIDED, after=True))
    entry = tmp_path / "offsets" / "1"
    entry.write_text(entry.read_text().replace('{"end": 6}', '{"end": 8}'))
    again = town.job(storage=job.storage, logs=logs, ends=(4, 8, 12))
    refused(again, CheckpointRolledBack, "onceward rewind CHECKPOINT 1")
    rewind(tmp_path, 1)
    town.drained(again)
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_a_rewind_too_far_is_refused_and_the_job_goes_on(tmp_path: Path) -> None:
    town = Town()
    job = town.job(storage=LocalStorage(tmp_path / "onceward"), logs=DirectoryLogs(tmp_path))
    job.life(until=1)
    with pytest.raises(CheckpointRefused, match="epoch 1 is published already") as caught:
        rewind(tmp_path, 0)
    assert "above 1" in str(caught.value.hint)
    town.drained(job)
    assert town.ids(A) == town.ids(B) == list(range(12))
