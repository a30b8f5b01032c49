"""Transactions that wait in the targets: what will become of each, and why. Used by `onceward transactions`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from onceward.contracts import AnySink, TwoPhaseCommitSink
from onceward.epoch import (
    PendingTransaction,
    Publisher,
    PublishLimits,
    RollbackDetector,
    RunContext,
    age_of,
    manifest_that_counts,
    named_by_marker,
    pending_transactions,
    since_of,
    survivors,
    transactions_of,
)
from onceward.errors import ConfigurationError
from onceward.identity import SinkName, TransactionName
from onceward.journal import Manifest
from onceward.recovery import failures_as_target_unavailable
from onceward.recovery.targets import receipts_places
from onceward.wal import WAL

NOBODY_CAN_TELL = "its epoch was settled so long ago that nothing tells whether it belongs to it"


class Verdict(Enum):
    """What the protocol does with a transaction. It never decides on one that another checkpoint may still want."""

    COMMIT = "commit"
    ABORT = "abort"
    WAIT = "wait"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class InDoubt:
    """One transaction that a target holds under the job's name.

    `since` is None where the target does not say; its age is then that of its epoch.
    """

    sink: SinkName
    transaction: str
    epoch: int
    slot: int
    since: datetime | None
    age_s: float | None
    verdict: Verdict
    why: str
    generation: str = ""


def in_doubt(context: RunContext) -> list[InDoubt]:
    """All of this job and generation, oldest epoch first. Lists first, then reads the decision, then the manifests."""
    listed = [found for found in pending_transactions(context) if found.sink != WAL]
    decided, watermark = context.decisions.decided(), context.watermark()
    manifests: dict[int, Manifest | None] = {}
    result = []
    for found in listed:
        epoch = found.name.epoch
        if epoch not in manifests and epoch > watermark:
            manifests[epoch] = _manifest(context, epoch)
        if epoch <= watermark:
            verdict, why = _verdict_of_settled(context, found)
        else:
            verdict, why = _verdict(found.name, decided, manifests.get(epoch))
        since, age_s = since_of(found), age_of(context, found)
        name = found.name
        result.append(InDoubt(found.sink, str(name), epoch, name.slot, since, age_s, verdict, why, name.generation))
    return sorted(result, key=lambda one: (one.epoch, one.sink, one.slot, one.transaction))


def _manifest(context: RunContext, epoch: int) -> Manifest | None:
    """The manifest that counts, without what a person took out of it."""
    manifest = manifest_that_counts(context, epoch)
    return context.resolved.without(manifest) if manifest is not None else None


def _verdict_of_settled(context: RunContext, found: PendingTransaction) -> tuple[Verdict, str]:
    names = named_by_marker(context, found.name.epoch)
    if names is None:
        return Verdict.ASK, NOBODY_CAN_TELL
    if str(found.name) not in names:
        return Verdict.ABORT, "its epoch is settled without it: a lost attempt or a zombie task left it"
    if survivors(context, [found]):
        return Verdict.COMMIT, "its epoch was settled with it: the target went back, and holds it again"
    return Verdict.WAIT, "its epoch was settled with it: the target went back, and what it holds again is not whole"


def _verdict(name: TransactionName, decided: int, manifest: Manifest | None) -> tuple[Verdict, str]:
    named = manifest is not None and str(name) in manifest.transactions()
    if name.epoch <= decided and manifest is None:
        return Verdict.WAIT, "its epoch is decided, but no valid manifest says what belongs to it"
    if name.epoch <= decided and named:
        return Verdict.COMMIT, "its epoch is decided and its manifest names it"
    if name.epoch <= decided:
        return Verdict.ABORT, "its epoch is decided and its manifest names another attempt, or a person took it out"
    if named:
        return (
            Verdict.WAIT,
            "pre-committed; its epoch is not decided. A restart would abort it and compute it again",
        )
    return Verdict.WAIT, "its epoch is being staged, or its driver died: a restart would abort it"


def commit_by_hand(context: RunContext, transaction: str, limits: PublishLimits | None = None) -> int:
    """Publish as a start would, the transaction among it: first what came back of settled epochs, then, if it is not of
    one of them, the decided epochs, each in order; the new watermark."""
    with failures_as_target_unavailable():
        found = _find(context, transaction)
    if found.verdict is not Verdict.COMMIT:
        raise ConfigurationError(
            f"{transaction} must not be committed: {found.why}",
            hint="its rows would be there twice, or before their time; see `onceward transactions list`",
            epoch=found.epoch,
            sink=found.sink,
        )
    is_settled = found.epoch <= context.watermark()
    # Nothing is published to another target then: it need not answer.
    asked = tuple(sink for sink in context.sinks if sink.name == found.sink or not is_settled)
    with failures_as_target_unavailable():
        context = replace(context, sinks=asked)
        context = replace(context, receipts_at=receipts_places(context))
        rollbacks = RollbackDetector(context, limits)
        rollbacks.look_back()
        rollbacks.after_listing(list(pending_transactions(context)))
    return context.watermark() if is_settled else Publisher(context, limits).publish_decided()


def abort_by_hand(context: RunContext, transaction: str) -> None:
    """Abort a transaction that nobody will ever publish, or of which nobody can tell any more: naming it decides."""
    with failures_as_target_unavailable():
        found = _find(context, transaction)
    if found.verdict not in (Verdict.ABORT, Verdict.ASK):
        raise ConfigurationError(
            f"{transaction} must not be aborted: {found.why}",
            hint="its rows would be lost"
            if found.verdict is Verdict.COMMIT
            else "stop the job and run `onceward recover CHECKPOINT --job FILE`: that fences it first",
            epoch=found.epoch,
            sink=found.sink,
        )
    for pending in transactions_of(context, found.sink):
        if str(pending.name) == transaction:
            variant = context.variant_for(pending.sink, pending.handle)
            if isinstance(variant, TwoPhaseCommitSink):
                variant.abort(pending.handle)


def _find(context: RunContext, transaction: str) -> InDoubt:
    """Asks only the target whose transaction it is: others need not answer."""
    asked = replace(context, sinks=_sinks_of(context, transaction))
    found = next((one for one in in_doubt(asked) if one.transaction == transaction), None)
    if found is None:
        raise ConfigurationError(
            f"no target of this job holds a transaction {transaction!r}",
            hint="names are printed by `onceward transactions list`; what is not the job's own is never touched",
        )
    return found


def is_own(context: RunContext, transaction: str) -> bool:
    """Whether its name says that it is of one of the job's sinks, in this generation."""
    return bool(_sinks_of(context, transaction))


def _sinks_of(context: RunContext, transaction: str) -> tuple[AnySink, ...]:
    name = TransactionName.parse(transaction)
    return tuple(sink for sink in context.sinks if name is not None and name.belongs_to(context.job, sink.name))
