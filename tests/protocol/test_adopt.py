"""A checkpoint of a plain Spark query is taken over; an epoch in flight is delivered whole, or not at all."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from lone_driver import plan
from one_target import KINDS, Kind, OneTarget, refused_with

from onceward.admin import Adoption, adopt, consequences, propose_adoption, propose_epoch_is_published, record
from onceward.contracts import Guarantee
from onceward.errors import CheckpointUnknown, ConfigurationError, DamagedFile
from onceward.identity import SinkName
from onceward.recovery import Accept, inspect_checkpoint
from onceward.testing import (
    DiesAt,
    Failed,
    FakeTwoPhaseSink,
    Harness,
    MemoryLogs,
    MemoryStorage,
    MemoryTarget,
    SinkUnderTest,
)
from onceward.testing.engine import COMMITS_ENTRY

NOW = datetime(2026, 11, 17, tzinfo=UTC)
SIGNED = {"by": "me", "at": NOW, "because": "we move"}


def found_by(harness: Harness) -> Adoption:
    return propose_adoption(
        name=harness.name,
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
        query=None,
    )


def left_by_spark(town: OneTarget, *, in_flight: bool, logs: MemoryLogs | None = None) -> Harness:
    """Epochs 0 and 1 were delivered by other means, and epoch 2 was begun."""
    harness = town.job(ends=(4, 8, 12, 16), logs=logs)
    plain = Harness(OneTarget(FakeTwoPhaseSink).job(ends=()).subjects[0], source=harness.source, logs=harness.logs)
    plain.life(until=1)
    if in_flight:
        plain.life(DiesAt("log commit 2"))
    return harness


@KINDS
@pytest.mark.parametrize("skips", [False, True], ids=["delivered", "skipped"])
def test_an_epoch_in_flight_is_delivered_or_skipped_as_a_person_says(kind: Kind, skips: bool) -> None:
    town = OneTarget(kind)
    harness = left_by_spark(town, in_flight=True)
    found = found_by(harness)
    assert (found.decided, found.in_flight) == (1, 2)
    assert "epoch 2 was begun" in found.lines[1]
    assert ("none of its rows is written" in consequences(found, skips_in_flight=skips)[0]) == skips
    adopt(found, skips_in_flight=skips, **SIGNED)
    harness.drain()
    assert town.ids() == list(range(12 if skips else 8, 16))
    harness.drain()
    assert town.ids() == list(range(12 if skips else 8, 16))


@KINDS
def test_without_one_there_is_nothing_to_choose(kind: Kind) -> None:
    town = OneTarget(kind)
    harness = left_by_spark(town, in_flight=False)
    found = found_by(harness)
    assert found.in_flight is None
    assert len(consequences(found, skips_in_flight=False)) == 2
    adopt(found, skips_in_flight=False, **SIGNED)
    harness.drain()
    assert town.ids() == list(range(8, 16))


@pytest.mark.parametrize("survives", [0, 1, 2])
def test_after_a_crash_it_is_given_again(survives: int) -> None:
    """Of what is written, only the first files last. Without its identity the checkpoint is still Spark's alone."""
    town = OneTarget(FakeTwoPhaseSink)
    harness = left_by_spark(town, in_flight=True)
    storage, files = harness.storage, list[tuple[str, bytes]]()
    assert isinstance(storage, MemoryStorage)

    class Dies(MemoryStorage):
        def create(self, path: str, data: bytes) -> bool:
            if len(files) == survives:
                raise KeyboardInterrupt
            files.append((path, data))
            storage.create(path, data)
            return super().create(path, data)

    harness.storage = Dies()
    with pytest.raises(KeyboardInterrupt):
        adopt(found_by(harness), skips_in_flight=True, **SIGNED)
    harness.storage = storage
    adopt(found_by(harness), skips_in_flight=True, **SIGNED)
    harness.drain()
    assert town.ids() == list(range(12, 16))


def test_what_is_onceward_s_already_is_refused_and_what_nobody_has_begun() -> None:
    town = OneTarget(FakeTwoPhaseSink)
    harness = town.job(ends=(4, 8))
    with pytest.raises(ConfigurationError, match="has begun nothing"):
        found_by(harness)
    harness.drain()
    with pytest.raises(ConfigurationError, match="runs on this checkpoint already"):
        found_by(harness)


@KINDS
def test_a_lost_folder_is_no_plain_checkpoint(kind: Kind) -> None:
    """Scenario 80."""
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8))
    harness.drain()
    lost = town.job(ends=(4, 8), logs=harness.logs)
    with pytest.raises(CheckpointUnknown, match="its folder onceward/ was lost"):
        found_by(lost)


@KINDS
def test_what_is_staged_under_a_lost_identity_is_not_abandoned(kind: Kind) -> None:
    """The rows are decided, and there is no receipt yet that could tell of them."""
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8))
    harness.life(DiesAt("log commit 0", after=True))
    harness.storage.delete("identity.json")
    with pytest.raises(CheckpointUnknown, match=r"identity.json is lost, and its folder onceward/ has epochs 0 to 0"):
        found_by(harness)
    error = refused_with(harness, CheckpointUnknown, Accept.ADOPT)
    assert "onceward resolve identity" in str(error.hint)
    shown = inspect_checkpoint(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
        name=harness.name,
    )
    assert isinstance(shown.refusal, CheckpointUnknown), "a dry run says what a start would"
    assert town.ids() == []


def test_transactions_of_a_lost_folder_are_not_abandoned() -> None:
    town = OneTarget(FakeTwoPhaseSink)
    harness = town.job(ends=(4, 8))
    harness.life(DiesAt("log commit 0", after=True))
    with pytest.raises(CheckpointUnknown, match="has receipts or transactions of a job 'job'"):
        found_by(town.job(ends=(4, 8), logs=harness.logs))


@pytest.mark.parametrize("goes_on", ["commits", "plans"])
def test_a_query_that_goes_on_while_a_person_is_asked_is_noticed(goes_on: str) -> None:
    town = OneTarget(FakeTwoPhaseSink)
    harness = left_by_spark(town, in_flight=True)
    found = found_by(harness)
    harness.logs.commit(2, COMMITS_ENTRY)
    if goes_on == "plans":
        plan(harness, 3)
    with pytest.raises(ConfigurationError, match="has gone on meanwhile"):
        adopt(found, skips_in_flight=True, **SIGNED)
    assert harness.storage.names("") == []


@KINDS
def test_a_start_that_is_refused_repairs_nothing_of_a_plain_query(kind: Kind) -> None:
    """A torn barrier is what is left of an epoch that the query may have written to the target."""
    town = OneTarget(kind)
    harness = left_by_spark(town, in_flight=True)
    harness.logs.offsets[2] = ""
    assert isinstance(harness.life(), Failed)
    assert harness.logs.planned() == 2
    with pytest.raises(DamagedFile) as torn:
        found_by(harness)
    assert "look for them in the target" in str(torn.value.hint)


def test_commits_without_offsets_are_a_query_too() -> None:
    town = OneTarget(FakeTwoPhaseSink)
    harness = left_by_spark(town, in_flight=False)
    harness.logs.offsets.clear()
    refused_with(harness, CheckpointUnknown)
    assert found_by(harness).decided == 1


def test_what_is_adopted_is_forced_to_the_disk_first() -> None:
    """By fingerprint: another barrier after a power loss would be another epoch."""
    synced: list[tuple[str, int]] = []

    class Watched(MemoryLogs):
        def sync_barrier(self, epoch: int) -> None:
            synced.append(("barrier", epoch))

        def sync_decision(self, epoch: int) -> None:
            synced.append(("decision", epoch))

    harness = left_by_spark(OneTarget(FakeTwoPhaseSink), in_flight=True, logs=Watched())
    synced.clear()
    adopt(found_by(harness), skips_in_flight=True, **SIGNED)
    assert synced == [("barrier", 2), ("decision", 1)]


@pytest.mark.parametrize("guarantee", list(Guarantee), ids=lambda one: one.value)
def test_of_several_sinks_one_that_has_all_of_the_epoch_is_left_out(guarantee: Guarantee) -> None:
    """`deliver`, then `resolve epoch-is-published --sink`, under every guarantee."""
    targets = {name: MemoryTarget() for name in ("a", "b")}
    sinks = [
        SinkUnderTest(FakeTwoPhaseSink(target, name=name), lambda target=target: target.rows)
        for name, target in targets.items()
    ]
    plain = left_by_spark(OneTarget(FakeTwoPhaseSink), in_flight=True)
    harness = Harness(*sinks, source=plain.source, logs=plain.logs, guarantee=guarantee)
    found = found_by(harness)
    identity = adopt(found, skips_in_flight=False, **SIGNED)
    context = replace(found.context, job=identity.identity)
    said = propose_epoch_is_published(context, epoch=2, sink=SinkName("a"))
    record(harness.storage, said, **SIGNED)
    harness.drain()
    ids = {name: sorted(row["id"] for row in target.rows) for name, target in targets.items()}
    assert ids == {"a": list(range(12, 16)), "b": list(range(8, 16))}
