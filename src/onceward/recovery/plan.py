"""What to do about it: a pure function from a survey to steps. `onceward recover --dry-run` prints the same steps.

The table of DESIGN §4, row by row, is `_decided` and `_undecided`; the dangerous cases of §5 are `_refusals`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from onceward.contracts import Receipt
from onceward.errors import CheckpointRefused, CheckpointReplaced, CheckpointRolledBack, OncewardError, SinkMissing
from onceward.identity import STRAIGHT, Fingerprint, Generation
from onceward.manifest import Manifest
from onceward.recovery.repair import Repair, describe_repair
from onceward.recovery.survey import EpochSurvey, Survey
from onceward.wal import is_segment


class Accept(Enum):
    """A consequence the user may accept for one start."""

    FRESH_START = "fresh-start"
    COPY = "copy"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Settle:
    """Decided, and every slot has its receipt (or there is none to have)."""

    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Decided, and slots are missing in the target."""

    epoch: int
    slots: int
    receipts: int


@dataclass(frozen=True, slots=True)
class Lose:
    """Decided, and nobody can say what was staged: looked at again, then the job stops."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Undecided: fence whoever worked on it, abort what is staged; Spark runs it again."""

    epoch: int


@dataclass(frozen=True, slots=True)
class AlreadyPublished:
    """The decision was made and then forgotten: finish it, and let Spark's repetition pass without staging."""

    epoch: int
    fingerprint: Fingerprint
    settled: bool


@dataclass(frozen=True, slots=True)
class Reap:
    """Abort what no valid manifest names."""

    count: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do nothing; the checkpoint and the target contradict each other."""

    error: OncewardError


@dataclass(frozen=True, slots=True)
class RepairLog:
    """Put right an entry of the engine's logs. Everything else is planned when that is done."""

    repair: Repair

    @property
    def epoch(self) -> int:
        """Whose entry it is."""
        return self.repair.epoch


Step = RepairLog | Settle | Publish | Lose | TakeOver | AlreadyPublished | Reap | Refuse


def describe(step: Step) -> str:
    """One line for people."""
    match step:
        case RepairLog(repair):
            return describe_repair(repair)
        case Settle(_, why):
            return why
        case Publish(_, slots, receipts):
            return f"{receipts} of {slots} slots have their receipt; publish the others"
        case Lose():
            return "decided, but no valid manifest says what was staged; the job would stop"
        case TakeOver():
            return "undecided: fence whoever worked on it, abort what is staged; Spark runs it again"
        case AlreadyPublished(_, _, settled):
            done = "is settled" if settled else "has receipts"
            return f"its decision was forgotten, but it {done}: Spark's repetition passes without staging"
        case Reap(count):
            return f"{count} transactions or segments that no manifest names are aborted"
        case Refuse(error):
            return error.message
        case _:
            assert_never(step)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps, in the order in which they are to be done."""

    steps: tuple[Step, ...]

    @property
    def refusal(self) -> OncewardError | None:
        """Why nothing may be done, if so."""
        return next((step.error for step in self.steps if isinstance(step, Refuse)), None)


def make_plan(survey: Survey, accepted: frozenset[Accept] = frozenset()) -> Plan:
    """The plan for what was found. Refusals stand alone: nothing else may happen beside them."""
    refusals = tuple(Refuse(error) for error in _refusals(survey) if Accept(error.accept) not in accepted)
    if refusals:
        return Plan(refusals)
    steps: list[Step] = []
    for epoch in range(survey.watermark + 1, survey.decided + 1):
        steps.append(_decided(survey, survey.epochs[epoch]))
    for epoch in sorted(epoch for epoch in survey.epochs if epoch > survey.decided):
        steps.append(_undecided(survey, survey.epochs[epoch]))
    if survey.orphans:
        steps.append(Reap(len(survey.orphans)))
    return Plan(tuple(steps))


def _decided(survey: Survey, found: EpochSurvey) -> Step:
    if found.manifest is None:
        return Settle(found.epoch, "made by Spark alone") if found.engine_made else Lose(found.epoch)
    slots = _slot_keys(found.manifest)
    receipts = {(r.sink, r.slot) for r in _receipts_of(survey, found.manifest.job.generation, found)} & slots
    if receipts == slots:
        return Settle(found.epoch, "every slot has its receipt" if slots else "nothing to publish")
    return Publish(found.epoch, slots=len(slots), receipts=len(receipts))


def _undecided(survey: Survey, found: EpochSurvey) -> Step:
    if found.epoch <= survey.watermark and found.fingerprint is not None:
        return AlreadyPublished(found.epoch, found.fingerprint, settled=True)
    receipts = _receipts_of(survey, survey.generation, found)
    if receipts and found.manifest is not None and found.fingerprint is not None:
        return AlreadyPublished(found.epoch, found.fingerprint, settled=False)
    if receipts:
        return Lose(found.epoch)
    left_behind = _left_behind(survey, found)
    return Refuse(left_behind) if left_behind else TakeOver(found.epoch)


def _left_behind(survey: Survey, found: EpochSurvey) -> SinkMissing | None:
    """Transactions of a sink that the job no longer has: taking the epoch over could not abort them."""
    for name, entry in found.manifest.sinks.items() if found.manifest else ():
        in_target = [slot for slot in entry.slots if not is_segment(slot.handle)]
        if survey.sinks and name not in survey.sinks and in_target:
            return SinkMissing(
                f"{len(in_target)} transactions of an undecided epoch wait in a sink that the job no longer has",
                epoch=found.epoch,
                sink=name,
                hint=f"start once with a sink named {name!r} so that they can be aborted, then remove it",
            )
    return None


def _slot_keys(manifest: Manifest) -> set[tuple[str, int]]:
    return {(name, slot.slot) for name, entry in manifest.sinks.items() for slot in entry.slots}


def _receipts_of(survey: Survey, generation: Generation, found: EpochSurvey) -> list[Receipt]:
    key = (generation, found.epoch, found.fingerprint)
    return [r for r in survey.receipts if (r.generation, r.epoch, r.fingerprint) == key]


def _refusals(survey: Survey) -> Iterator[CheckpointRefused]:
    """Contradictions, each named once."""
    foreign = sorted({r.generation for r in survey.receipts if r.generation not in survey.known_generations})
    if foreign:
        yield _replaced(survey, foreign)
    ours = [r for r in survey.receipts if r.generation == survey.generation and r.fingerprint != STRAIGHT]
    ahead = max((r.epoch for r in ours), default=-1)
    if max(ahead, survey.watermark) > max(survey.planned, survey.decided):
        yield rolled_back(
            f"the target has epoch {max(ahead, survey.watermark)} of this job, but the checkpoint has planned only "
            f"up to {survey.planned}"
        )
        return
    for receipt in ours:
        found = survey.epochs.get(receipt.epoch)
        if found is not None and found.fingerprint not in (None, receipt.fingerprint):
            yield rolled_back(f"epoch {receipt.epoch} in the target covers other source rows than this checkpoint's")
            return
    settled, now = survey.watermark_fingerprint, survey.watermark_barrier
    if now is not None and settled and settled != now:
        yield rolled_back(f"epoch {survey.watermark} was settled with other source rows than it has now")


def _replaced(survey: Survey, foreign: list[Generation]) -> CheckpointReplaced:
    newest = {g: max(r.epoch for r in survey.receipts if r.generation == g) for g in foreign}
    listed = ", ".join(f"generation {g} up to epoch {epoch}" for g, epoch in newest.items())
    sinks = ", ".join(sorted({repr(str(r.sink)) for r in survey.receipts if r.generation in newest}))
    return CheckpointReplaced(
        f"sink {sinks} already has output of this job from another checkpoint ({listed}); going on would deliver the "
        "same source rows again",
        hint="if the checkpoint was deleted or the job is a fork and repeating them is what you want, start once with "
        "--accept fresh-start (in Python: accept='fresh-start'); else restore the old checkpoint or rename the job",
    )


def rolled_back(why: str) -> CheckpointRolledBack:
    """The refusal of a checkpoint that is behind its target."""
    return CheckpointRolledBack(
        f"this checkpoint is older than what it has delivered: {why}",
        hint="restore the newest copy of the checkpoint; or, to deliver the rows since then a second time, start once "
        "with --accept rollback (in Python: accept='rollback')",
    )
