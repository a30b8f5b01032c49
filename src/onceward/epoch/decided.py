"""How a decided epoch ends: one table, by which a start plans and the publisher publishes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from onceward.contracts import Receipt
from onceward.epoch.exits import with_exits
from onceward.epoch.run_context import RunContext
from onceward.errors import CheckpointRolledBack, DamagedFile, NewerFormat, OncewardError
from onceward.identity import Fingerprint, Generation, SinkName
from onceward.journal import Manifest, Resolved


@dataclass(frozen=True, slots=True)
class EpochSurvey:
    """One epoch as the engine's log and ours have it. `damaged` says why its manifest cannot be read."""

    epoch: int
    fingerprint: Fingerprint | None
    manifest: Manifest | None
    engine_made: bool = False
    damaged: DamagedFile | None = None


@dataclass(frozen=True, slots=True)
class Settle:
    """Decided, and every slot has its receipt (or there is none to have)."""

    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Decided, and slots are missing in the target. `left_out` slots more are not published: a person said so."""

    epoch: int
    slots: int
    receipts: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class ReportLost:
    """Decided, and nobody can say what was staged: looked at again, then the job stops, with `error` where it tells
    more than that no manifest is there."""

    epoch: int
    error: OncewardError | None = None


def survey_epoch(context: RunContext, epoch: int, taken: Callable[[], int]) -> EpochSurvey:
    """Look at one epoch. `taken` finds the takeover number whose manifest counts."""
    barrier = context.decisions.barrier(epoch)
    manifest, damaged = None, None
    try:
        manifest = context.register.manifest(epoch, taken())
    except NewerFormat:
        raise
    except DamagedFile as error:
        damaged = error
    return EpochSurvey(
        epoch=epoch,
        fingerprint=barrier.fingerprint if barrier else None,
        manifest=manifest,
        engine_made=manifest is None and damaged is None and context.decisions.is_engine_made(epoch),
        damaged=damaged,
    )


def decided_step(
    found: EpochSurvey,
    resolved: Resolved,
    generation: Generation,
    sinks: Collection[SinkName],
    receipts: Iterable[Receipt] = (),
) -> Settle | Publish | ReportLost:
    """What is to be done about a decided epoch that is not settled, given the receipts that its targets have."""
    manifest = found.manifest
    if manifest is None:
        by_hand = resolved.end(generation, found.epoch, found.fingerprint, sinks)
        if by_hand is not None or found.engine_made:
            return Settle(found.epoch, by_hand or "made by Spark alone")
        return ReportLost(found.epoch, with_exits(found.damaged, found.epoch) if found.damaged else None)
    if found.fingerprint not in (None, manifest.fingerprint):
        return ReportLost(found.epoch, _put_together(found.epoch))
    key = (manifest.job.generation, found.epoch, manifest.fingerprint)
    slots = _slots_of(resolved.without(manifest))
    left_out = len(_slots_of(manifest)) - len(slots)
    whole = [r for r in receipts if r.is_whole and (r.generation, r.epoch, r.fingerprint) == key]
    there = slots & {(r.sink, r.slot) for r in whole}
    if there == slots:
        why = "every slot has its receipt" if slots else "nothing to publish"
        return Settle(found.epoch, f"{why}; {left_out} were resolved by hand" if left_out else why)
    return Publish(found.epoch, slots=len(slots), receipts=len(there), left_out=left_out)


def _slots_of(manifest: Manifest) -> set[tuple[SinkName, int]]:
    return {(name, slot.slot) for name, entry in manifest.sinks.items() for slot in entry.slots}


def _put_together(epoch: int) -> CheckpointRolledBack:
    return CheckpointRolledBack(
        "the manifest belongs to another epoch of this number than the one Spark decided",
        epoch=epoch,
        hint="the checkpoint was put together from two: restore it whole from one backup; or run "
        f"`onceward rewind CHECKPOINT {epoch}`: what was staged is aborted, and Spark computes what its log has now",
    )
