"""Transactions under the job's name that no start looks at: of another generation, or of a sink that was removed.

An accepted copy or rollback gives the checkpoint a new generation, and a removed sink is asked for nothing. What was
staged before stays in the target. It is listed here with what is known of it, and ended only when a person says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from onceward.admin.in_doubt import NOBODY_CAN_TELL, InDoubt, Verdict
from onceward.contracts import Handle, TwoPhaseCommitSink
from onceward.epoch import (
    PendingTransaction,
    PublishLimits,
    RollbackDetector,
    RunContext,
    age_of,
    named_by_marker,
    since_of,
)
from onceward.epoch.run_context import log
from onceward.errors import ConfigurationError, DamagedFile
from onceward.identity import SinkName, TransactionName, sink_digest
from onceward.journal import IdentityFile, IdentityRecord, Kind, Resolution, Resolutions
from onceward.recovery import failures_as_target_unavailable


@dataclass(frozen=True, slots=True)
class _Past:
    """What the checkpoint remembers of generations: its own records, in order."""

    records: tuple[IdentityRecord, ...]

    def verdict(self, generation: str) -> tuple[Verdict, str]:
        """Of a transaction of a generation that is not this checkpoint's own."""
        now = self.records[-1]
        mine = [record for record in self.records if record.generation == generation]
        if any(record.directory_id == now.directory_id for record in mine):
            return Verdict.ABORT, (
                "its generation was this very directory's before a rollback was accepted: nobody runs under it any more"
            )
        if mine:
            return Verdict.ASK, (
                "this directory is a copy of the one that has its generation: the original may be alive and commit it"
            )
        if generation in now.known:
            return Verdict.ASK, (
                "its generation is that of another checkpoint of this job, whose output was accepted: if that one was "
                "deleted, nobody ends it any more; if it lives, it will"
            )
        return Verdict.ASK, "no record here tells of its generation: another checkpoint works under this job's name"


def strays(context: RunContext) -> list[InDoubt]:
    """What a start does not look at, oldest epoch first. Lists the targets first, then reads what is known."""
    listed = list(_listed(context))
    if not listed:
        return []
    decided, watermark = context.decisions.decided(), context.watermark()
    past = _Past(IdentityFile(context.storage).history())
    result = []
    for found in listed:
        verdict, why = _named(context, found.name, decided, watermark) or _verdict(context, found.name, watermark, past)
        result.append(_in_doubt(context, found, verdict, why))
    return sorted(result, key=lambda one: (one.generation, one.epoch, one.slot, one.transaction))


def warn_of_strays(context: RunContext, limits: PublishLimits | None = None) -> None:
    """At a start: say that they exist. That a target does not list them now is no reason not to start; but one that has
    failed may be an older state of itself from here on, and is asked what it has."""
    try:
        found = strays(context)
    except Exception as error:
        log.info("the targets were not asked for old transactions: %s: %s", type(error).__name__, error)
        with failures_as_target_unavailable():
            RollbackDetector(context, limits).look_back()
        return
    for generation, count in sorted(Counter(one.generation for one in found).items()):
        whose = "a sink that was removed" if generation == context.job.generation else f"generation {generation}"
        log.warning(
            "%d transactions of %s wait in the targets, and no start ends them; `onceward transactions list FILE --all`"
            " tells what is known of them",
            count,
            whose,
        )


def to_abort(context: RunContext, *, name: str | None = None, generation: str | None = None) -> list[InDoubt]:
    """Those that may be aborted: what nobody ends any more, and all of a generation that a person declares dead."""
    found = [one for one in strays(context) if name in (None, one.transaction)]
    if name is not None and not found:
        raise ConfigurationError(
            f"no target of this job holds a transaction {name!r}",
            hint="names are printed by `onceward transactions list --all`",
        )
    own = context.job.generation
    chosen = [one for one in found if _may_be_aborted(one, own=own, name=name, generation=generation)]
    if name is not None and not chosen:
        (one,) = found[:1]
        raise ConfigurationError(
            f"{name} must not be aborted: {one.why}",
            hint=f"if you know that nobody runs under generation {one.generation} any more, add --generation "
            f"{one.generation}"
            if one.verdict is Verdict.ASK
            else "start the job once with the sink that it is of",
            epoch=one.epoch,
        )
    return chosen


def _may_be_aborted(one: InDoubt, *, own: str, name: str | None, generation: str | None) -> bool:
    """Nobody ends it any more. Or a person says so: of another generation as a whole, of this one by naming the very
    transaction."""
    if one.verdict is not Verdict.ASK:
        return one.verdict is Verdict.ABORT
    return name == one.transaction if one.generation == own else generation == one.generation


def abort_strays(context: RunContext, chosen: Sequence[InDoubt], *, by: str, at: datetime, because: str) -> None:
    """Record it, durably, then abort them. After a crash in between they are still listed: give it again."""
    record_abort(context, chosen, by=by, at=at, because=because)
    names = {one.transaction for one in chosen}
    for variant, handle in _handles(context):
        if str(handle.get("transaction")) in names:
            variant.abort(handle)


def record_abort(context: RunContext, chosen: Sequence[InDoubt], *, by: str, at: datetime, because: str) -> None:
    """Write down which transactions a person aborts, and why."""
    Resolutions(context.storage).create(
        Resolution(
            kind=Kind.ABORT_TRANSACTIONS,
            generation=context.job.generation,
            by=by,
            at=at,
            because=because,
            transactions=tuple(sorted({one.transaction for one in chosen})),
            shown=tuple(f"{one.transaction}: {one.why}" for one in chosen),
        )
    )


def _handles(context: RunContext) -> Iterable[tuple[TwoPhaseCommitSink[object], Handle]]:
    for variant in context.variants():
        if isinstance(variant, TwoPhaseCommitSink):
            for handle in variant.pending_of_job(context.job.name):
                yield variant, handle


def _listed(context: RunContext) -> Iterable[PendingTransaction]:
    """Each once, though two sinks of one target list the same ones. Those that a start looks at are left out."""
    own = [variant.name for variant in context.variants()]
    seen: set[str] = set()
    for variant, handle in _handles(context):
        name = TransactionName.parse(str(handle.get("transaction")))
        if name is None or str(name) in seen or any(name.belongs_to(context.job, sink) for sink in own):
            continue
        seen.add(str(name))
        yield PendingTransaction(variant.name, name, handle)


def _named(context: RunContext, name: TransactionName, decided: int, watermark: int) -> tuple[Verdict, str] | None:
    """What a manifest that counts says of it, in whatever generation it was written."""
    if name.epoch <= watermark:
        return _named_by_marker(context, name)
    try:
        manifest = context.register.valid_manifest(name.epoch)
    except DamagedFile:
        return Verdict.WAIT, "the manifest of its epoch, which would tell whether it counts, cannot be read"
    if manifest is None or str(name) not in context.resolved.without(manifest).transactions():
        return None
    if context.resolved.gives_up(str(name)):
        return None
    return Verdict.WAIT, (
        "the manifest of its epoch names it, and its sink is no longer in the job: start once with that sink, or give "
        f"it up: `onceward resolve accept-loss FILE {name.epoch}`"
        if name.sink not in {sink_digest(variant.name) for variant in context.variants()}
        else f"the manifest of its epoch names it; it is {'' if name.epoch <= decided else 'not '}decided"
    )


def _named_by_marker(context: RunContext, name: TransactionName) -> tuple[Verdict, str] | None:
    try:
        context.settled.marker(name.epoch)
    except DamagedFile:
        return Verdict.WAIT, "the marker of its epoch, which would tell whether it counts, cannot be read"
    names = named_by_marker(context, name.epoch)
    if names is not None and str(name) in names:
        return Verdict.WAIT, "its epoch was settled with it, and yet it is there: the target went back to before that"
    is_own = name.generation == context.job.generation
    return (Verdict.ASK, NOBODY_CAN_TELL) if names is None and is_own else None


def _verdict(context: RunContext, name: TransactionName, watermark: int, past: _Past) -> tuple[Verdict, str]:
    if name.generation != context.job.generation:
        return past.verdict(name.generation)
    if name.epoch <= watermark:
        return Verdict.ABORT, "its epoch is settled without it, and its sink is no longer in the job"
    if context.resolved.gives_up(str(name)):
        return Verdict.ABORT, "a person gave it up, and its sink is no longer in the job"
    if _is_taken_over(context, name):
        return Verdict.ABORT, "its epoch was taken over since, and its sink is no longer in the job"
    return Verdict.WAIT, "its sink is no longer in the job; its epoch is not settled, and may be being staged"


def _is_taken_over(context: RunContext, name: TransactionName) -> bool:
    try:
        return context.register.taken(name.epoch, context.register.files(name.epoch)) > name.takeover
    except DamagedFile:
        return False


def _in_doubt(context: RunContext, found: PendingTransaction, verdict: Verdict, why: str) -> InDoubt:
    names = {sink_digest(variant.name): variant.name for variant in context.variants()}
    sink = names.get(found.name.sink, SinkName(f"removed ({found.name.sink})"))
    return InDoubt(
        sink=sink,
        transaction=str(found.name),
        epoch=found.name.epoch,
        slot=found.name.slot,
        since=since_of(found),
        age_s=age_of(context, found) if since_of(found) is not None else None,
        verdict=verdict,
        why=why,
        generation=found.name.generation,
    )
