"""What to do about it: a pure function from a survey to steps. `onceward recover --dry-run` prints the same steps.

The table of docs/architecture.md ("Recovery"), row by row, is `decided_step`, `_undecided` and, for targets that went
back, `CommitPrepared`; what must not be gone on from (a checkpoint that was rolled back or begun anew, a target that
lacks epochs) is a `Refuse`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from onceward.contracts import Receipt
from onceward.epoch import EpochSurvey, PendingTransaction, Publish, ReportLost, Settle, as_ranges, decided_step
from onceward.errors import (
    CheckpointRefused,
    CheckpointReplaced,
    CheckpointRolledBack,
    CheckpointUnknown,
    DamagedFile,
    OncewardError,
    SinkMissing,
)
from onceward.identity import IMMEDIATE, Fingerprint, Generation
from onceward.recovery.repair import Repair, describe_repair
from onceward.recovery.rollback import restored_behind
from onceward.recovery.survey import Survey
from onceward.wal import is_segment


class Accept(Enum):
    """A consequence the user may accept for one start."""

    FRESH_START = "fresh-start"
    COPY = "copy"
    ROLLBACK = "rollback"
    ADOPT = "adopt"


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
class CommitPrepared:
    """A target that went back holds transactions of settled epochs again: commit them, the oldest first."""

    transactions: Sequence[PendingTransaction]

    @property
    def epoch(self) -> int:
        """The oldest of their epochs."""
        return min(one.name.epoch for one in self.transactions)


@dataclass(frozen=True, slots=True)
class Reap:
    """Abort what no valid manifest names."""

    count: int


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """Only in a dry run: the start takes a new generation first, and plans the rest as that."""


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


Step = (
    RepairLog | BeginAnew | CommitPrepared | Settle | Publish | ReportLost | TakeOver | AlreadyPublished | Reap | Refuse
)


def describe(step: Step) -> str:
    """One line for people."""
    match step:
        case RepairLog(repair):
            return describe_repair(repair)
        case BeginAnew():
            return (
                "a new generation begins, in which what the targets have so far proves nothing: what is not decided, "
                "or was decided and is forgotten, is computed and delivered again; the rest is planned then"
            )
        case CommitPrepared(transactions):
            epochs = as_ranges(one.name.epoch for one in transactions)
            return f"settled, and {len(transactions)} transactions of {epochs} are there again: they are committed"
        case Settle(_, why):
            return why
        case Publish(_, slots, receipts, left_out):
            by_hand = f"; {left_out} more were resolved by hand and are left out" if left_out else ""
            return f"{receipts} of {slots} slots have their receipt; publish the others{by_hand}"
        case ReportLost(_, error):
            why = f" ({error.message})" if error else ""
            return f"decided, but no valid manifest says what was staged{why}; the job would stop"
        case TakeOver():
            return "undecided: fence whoever worked on it, abort what is staged; Spark runs it again"
        case AlreadyPublished(_, _, settled):
            done = "is settled" if settled else "is published"
            return f"its decision was forgotten, but it {done}: Spark's repetition passes without staging"
        case Reap(count):
            return f"{count} transactions or segments that no manifest names are aborted"
        case Refuse(error):
            return error.message
        case _:
            assert_never(step)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps, in the order in which they are to be done, and the contradictions that a person accepted."""

    steps: tuple[Step, ...]
    accepted: tuple[CheckpointRefused, ...] = ()

    @property
    def refusal(self) -> OncewardError | None:
        """Why nothing may be done, if so."""
        return next((step.error for step in self.steps if isinstance(step, Refuse)), None)


def make_plan(survey: Survey, accepted: frozenset[Accept] = frozenset()) -> Plan:
    """The plan for what was found. Refusals stand alone: nothing else may happen beside them."""
    contradictions = tuple(_refusals(survey))
    if refusals := tuple(Refuse(error) for error in contradictions if Accept(error.accept) not in accepted):
        return Plan(refusals)
    # A new generation has no past in the targets: it may have others.
    is_new_life = begins_anew(survey, contradictions)
    if survey.rolled_back is not None and not is_new_life:
        return Plan((Refuse(survey.rolled_back),))
    steps: list[Step] = []
    if survey.came_back and not is_new_life:
        steps.append(CommitPrepared(survey.came_back))
    for epoch in range(survey.watermark + 1, survey.decided + 1):
        found = survey.epochs[epoch]
        steps.append(decided_step(found, survey.resolved, survey.generation, survey.sinks, survey.receipts))
    for epoch in sorted(epoch for epoch in survey.epochs if epoch > survey.decided):
        steps.append(_undecided(survey, survey.epochs[epoch]))
    if survey.orphans:
        steps.append(Reap(len(survey.orphans)))
    older = _older_copy(survey, steps) if survey.is_copy and Accept.ROLLBACK not in accepted else None
    return Plan(tuple(steps), contradictions) if older is None else Plan((Refuse(older),))


def begins_anew(survey: Survey, accepted: Iterable[CheckpointRefused]) -> bool:
    """Whether a start takes a new generation: of a copy, and after a rollback that was accepted."""
    return survey.is_copy or any(isinstance(error, CheckpointRolledBack) for error in accepted)


def _undecided(survey: Survey, found: EpochSurvey) -> Step:
    is_published, _ = survey.resolved.published(survey.generation, found.epoch, found.fingerprint)
    if found.epoch <= survey.watermark and found.fingerprint is not None:
        if survey.watermark_damaged is not None and not is_published:
            return Refuse(_unreadable_marker(survey.watermark_damaged, found.epoch))
        return AlreadyPublished(found.epoch, found.fingerprint, settled=True)
    receipts = _receipts_of(survey, survey.generation, found)
    if (is_published or (receipts and found.manifest is not None)) and found.fingerprint is not None:
        return AlreadyPublished(found.epoch, found.fingerprint, settled=False)
    if _unexplained(survey, found):
        return ReportLost(found.epoch, found.damaged)
    left_behind = _left_behind(survey, found)
    return Refuse(left_behind) if left_behind else TakeOver(found.epoch)


def _left_behind(survey: Survey, found: EpochSurvey) -> SinkMissing | None:
    """Transactions of a sink that the job no longer has: taking the epoch over could not abort them."""
    for name, entry in found.manifest.sinks.items() if found.manifest else ():
        in_target = [
            slot
            for slot in entry.slots
            if not is_segment(slot.handle) and not survey.resolved.gives_up(slot.transaction)
        ]
        if survey.sinks and name not in survey.sinks and in_target:
            return SinkMissing(
                f"{len(in_target)} transactions of an undecided epoch wait in a sink that the job no longer has",
                epoch=found.epoch,
                sink=name,
                hint=f"start once with a sink named {name!r} so that they can be aborted, then remove it; or leave "
                f"them there: `onceward resolve accept-loss FILE {found.epoch} --sink {name!r}`",
            )
    return None


def _receipts_of(survey: Survey, generation: Generation, found: EpochSurvey) -> list[Receipt]:
    key = (generation, found.epoch, found.fingerprint)
    return [r for r in survey.receipts if (r.generation, r.epoch, r.fingerprint) == key]


def _unexplained(survey: Survey, found: EpochSurvey) -> bool:
    """Whether the target has output of an undecided epoch of which no manifest tells, nor a person."""
    if found.manifest is not None:
        return False
    is_published, sinks = survey.resolved.published(survey.generation, found.epoch, found.fingerprint)
    receipts = _receipts_of(survey, survey.generation, found)
    return not is_published and bool({r.sink for r in receipts} - sinks)


def _unreadable_marker(why: str, epoch: int) -> DamagedFile:
    return DamagedFile(
        f"{why}; it would tell whether epoch {epoch}, which Spark is about to run, is the one that was settled",
        epoch=epoch,
        hint="restore it from a backup of the checkpoint; or, if nobody has put other logs of Spark's in place, "
        f"`onceward resolve epoch-is-published FILE {epoch}`: Spark's repetition then passes without staging",
    )


def _refusals(survey: Survey) -> Iterator[CheckpointRefused]:
    """Contradictions, each named once."""
    foreign = sorted({r.generation for r in survey.receipts if r.generation not in survey.known_generations})
    if not survey.is_identified and max(survey.planned, survey.decided) >= 0:
        yield _unknown(survey)
        # Taking the checkpoint over delivers nothing again that Spark has decided: only what is above that counts.
        above = {r.generation for r in survey.receipts if r.epoch > survey.decided}
        foreign = [generation for generation in foreign if generation in above]
    if survey.restored is not None and (later := survey.later):
        yield restored_behind(survey.restored, later, survey.delivered)
        foreign = [generation for generation in foreign if generation not in {r.generation for r in later}]
    if foreign:
        yield _replaced(survey, foreign)
    ours = [r for r in survey.receipts if r.generation == survey.generation and r.fingerprint != IMMEDIATE]
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
    for found in survey.epochs.values():
        if found.epoch > max(survey.decided, survey.watermark) and _unexplained(survey, found):
            yield _rolled_back_under(survey, found)
            return
    settled, now = survey.watermark_fingerprint, survey.watermark_barrier
    if now is not None and settled and settled != now:
        yield rolled_back(f"epoch {survey.watermark} was settled with other source rows than it has now")


def _older_copy(survey: Survey, steps: Iterable[Step]) -> CheckpointRolledBack | None:
    """A copy that has not decided an epoch which the target has. It gets a generation of its own, in which the receipts
    of the original prove nothing: it would deliver that epoch again."""
    for step in steps:
        match step:
            case ReportLost(epoch) | AlreadyPublished(epoch, _, False) if epoch > survey.decided:
                return rolled_back(f"the target has epoch {epoch}, and this copy was made before it was decided")
            case _:
                pass
    return None


def _rolled_back_under(survey: Survey, found: EpochSurvey) -> CheckpointRolledBack:
    """The epoch was decided and published, and then a snapshot from before that was put back."""
    has = {r.sink for r in _receipts_of(survey, survey.generation, found)}
    lacks = f"; sink {_listed(survey.sinks - has)} has none of it" if survey.sinks - has else ""
    error = rolled_back(
        f"the target has output of epoch {found.epoch} (sink {_listed(has)}{lacks}), and the checkpoint neither has "
        f"decided it nor knows what was staged for it{f': {found.damaged.message}' if found.damaged else ''}"
    )
    hint = (
        f"{error.hint}; or, if the target has all of it, `onceward resolve epoch-is-published FILE {found.epoch}` "
        "(with --sink S for one sink: Spark computes the epoch again, and S is left out)"
    )
    return CheckpointRolledBack(error.message, epoch=found.epoch, hint=hint)


def _unknown(survey: Survey) -> CheckpointUnknown:
    """A checkpoint that only Spark knows. Receipts of this job tell that our folder was lost."""
    begun = (
        f"; epoch {survey.planned}, which was begun and not decided, may be in the target in part"
        if survey.planned > survey.decided
        else ""
    )
    skipped = f"up to epoch {survey.decided}"
    done = f"decided epochs {skipped}" if survey.decided >= 0 else "begun"
    newest: dict[str, int] = {}
    for receipt in survey.receipts:
        newest[receipt.sink] = max(receipt.epoch, newest.get(receipt.sink, -1))
    if not newest:
        return CheckpointUnknown(
            f"Spark has {done} on this checkpoint, and onceward has never run on it{begun}",
            hint="`onceward adopt CHECKPOINT --job FILE` takes it over, and says what was delivered before. Or start "
            "once with --accept adopt (in Python: accept='adopt'): decided epochs are left to whoever delivered them, "
            "and one that was begun is delivered whole; else give the job an empty directory",
        )
    lacking = []
    for sink in sorted({*survey.sinks, *newest}):
        first = newest.get(sink, -1) + 1
        if first <= survey.decided:
            epochs = f"epochs {first} to {survey.decided}" if first < survey.decided else f"epoch {first}"
            lacking.append(f"sink {sink!r} has no receipt of {epochs}")
    told = (
        f"{'; '.join(lacking)}: what was staged for them was either empty there or is not delivered"
        if lacking
        else f"every sink has receipts of epoch {survey.decided}, so that all of it was begun to be delivered"
    )
    if survey.decided < 0:
        told, done = "nothing of them is decided here", "begun"
    return CheckpointUnknown(
        f"the targets have receipts of this job, and Spark has {done} on this checkpoint, but its folder onceward/ was "
        f"lost. {told}{begun}",
        hint="restore the folder onceward/ from a backup: that loses nothing. Or start once with --accept adopt (in "
        f"Python: accept='adopt'): the job goes on above epoch {survey.decided}, and what is not delivered of the "
        f"epochs {skipped} never will be. Or remove the whole checkpoint and start with --accept fresh-start: every "
        "source row is delivered again, beside what the targets have",
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(repr(str(name)) for name in names))


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
