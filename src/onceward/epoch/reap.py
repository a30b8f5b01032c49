"""What the target still holds under our name, and which of it nobody will ever publish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from onceward.contracts import Handle, TwoPhaseCommitSink
from onceward.epoch.run_context import RunContext
from onceward.errors import DamagedFile
from onceward.identity import SinkName, TransactionName
from onceward.journal import Manifest
from onceward.wal import WAL


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """What a target, or the log, holds of this job: prepared, or begun and left. `orphans` finds those nobody wants."""

    sink: SinkName
    name: TransactionName
    handle: Handle


def pending_transactions(context: RunContext) -> Iterator[PendingTransaction]:
    """Everything of this job, generation and sinks that is staged, finished or not, in the targets and in the log."""
    for sink in context.variants():
        if isinstance(sink, TwoPhaseCommitSink):
            yield from _named(sink.name, sink.pending(context.job))
    yield from _named(WAL, context.segments.pending(context.job, besides=context.kept.epochs()))


def transactions_of(context: RunContext, name: SinkName) -> Iterator[PendingTransaction]:
    """The same of one sink alone, and only what its target holds."""
    for sink in context.variants():
        if sink.name == name and isinstance(sink, TwoPhaseCommitSink):
            yield from _named(name, sink.pending(context.job))


def _named(sink: SinkName, handles: Iterable[Handle]) -> Iterator[PendingTransaction]:
    for handle in handles:
        name = TransactionName.parse(str(handle.get("transaction")))
        if name is not None:
            yield PendingTransaction(sink, name, handle)


def orphans(context: RunContext, listed: list[PendingTransaction] | None = None) -> list[PendingTransaction]:
    """What the reaper may abort, of what was listed just now if that is given.

    It lists first, then reads the decision, then the manifest or, in a settled epoch, the marker, and has no other
    rule. What a marker names is never aborted: a target that went back holds it as the only copy (`look_back`). Where
    the marker is gone or damaged nobody can tell, and nothing is aborted either.

    The order matters: a transaction that is listed before an epoch's manifest is read either is in the manifest or
    never will be, because a decided epoch's manifest is written and staging for it is over. An attempt that begins
    later is found the next time.
    """
    listed = list(pending_transactions(context)) if listed is None else listed
    if not listed:
        return []
    decided = context.decisions.decided()
    watermark = context.watermark()
    named: dict[int, set[str] | None] = {}
    kept = context.kept.epochs()
    found = []
    for one in listed:
        epoch = one.name.epoch
        if epoch <= watermark:
            if _is_rubbish(context, one, kept):
                found.append(one)
        elif epoch <= decided:
            if epoch not in named:
                manifest = manifest_that_counts(context, epoch)
                named[epoch] = manifest.transactions() if manifest is not None else None
            names = named[epoch]
            if names is not None and str(one.name) not in names:
                found.append(one)
    return found


def _is_rubbish(context: RunContext, found: PendingTransaction, kept: frozenset[int]) -> bool:
    """Whether nobody will want this of a settled epoch any more."""
    if found.sink == WAL:
        return found.name.epoch not in kept
    names = named_by_marker(context, found.name.epoch)
    return names is not None and str(found.name) not in names


def named_by_marker(context: RunContext, epoch: int) -> set[str] | None:
    """The transactions with which a settled epoch was published, without those that a person took out of it.

    None where nobody can tell: the marker is pruned or damaged, or of a release that did not keep the names.
    """
    marker = context.settled.legible(epoch)
    if marker is None or (marker.manifest is None and marker.sinks):
        return None
    return context.resolved.without(marker.manifest).transactions() if marker.manifest is not None else set()


def manifest_that_counts(context: RunContext, epoch: int) -> Manifest | None:
    """Of an epoch that is not settled; None when there is none to go by, or a takeover has no outcome yet."""
    files = context.register.files(epoch)
    if files.reserved - files.fates:
        return None
    try:
        return context.register.valid_manifest(epoch, files)
    except DamagedFile:
        return None


def abort_transactions(context: RunContext, chosen: Callable[[TransactionName], bool]) -> int:
    """Abort everything pending whose name is chosen; how many that were."""
    matching = [one for one in pending_transactions(context) if chosen(one.name)]
    abort_all(context, matching)
    return len(matching)


def abort_all(context: RunContext, found: list[PendingTransaction]) -> None:
    """Abort these, each where it lives."""
    for one in found:
        if one.sink == WAL:
            context.segments.remove(one.handle)
        elif isinstance(sink := context.variant_for(one.sink, one.handle), TwoPhaseCommitSink):
            sink.abort(one.handle)
