"""What the target still holds under our name, and which of it nobody will ever publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onceward.contracts import Handle, TwoPhaseCommitSink
from onceward.epoch.ground import Ground
from onceward.errors import DamagedFile
from onceward.identity import SinkName, TransactionName
from onceward.wal import WAL


@dataclass(frozen=True, slots=True)
class Orphan:
    """A transaction or segment that no valid manifest accounts for and none ever will."""

    sink: SinkName
    name: TransactionName
    handle: Handle


def pending_transactions(ground: Ground) -> Iterator[Orphan]:
    """Everything of this job, generation and sinks that is staged, finished or not, in the targets and in the log."""
    for sink in ground.ways():
        if isinstance(sink, TwoPhaseCommitSink):
            yield from _named(sink.name, sink.pending(ground.job))
    yield from _named(WAL, ground.shelf.pending(ground.job, besides=ground.kept.epochs()))


def transactions_of(ground: Ground, name: SinkName) -> Iterator[Orphan]:
    """The same of one sink alone, and only what its target holds."""
    for sink in ground.ways():
        if sink.name == name and isinstance(sink, TwoPhaseCommitSink):
            yield from _named(name, sink.pending(ground.job))


def _named(sink: SinkName, handles: object) -> Iterator[Orphan]:
    for handle in handles:  # type: ignore[attr-defined]
        name = TransactionName.parse(str(handle.get("transaction")))
        if name is not None:
            yield Orphan(sink, name, handle)


def orphans(ground: Ground, listed: list[Orphan] | None = None) -> list[Orphan]:
    """What the reaper may abort, of what was listed just now if that is given.

    It lists first, then reads the decision, then the manifest or, in a settled epoch, the marker, and has no other
    rule. What a marker names is never aborted: a target that went back holds it as the only copy (`look_back`). Where
    the marker is gone or damaged nobody can tell, and nothing is aborted either.

    The order matters: a transaction that is listed before an epoch's manifest is read either is in the manifest or
    never will be, because a decided epoch's manifest is written and staging for it is over. An attempt that begins
    later is found the next time.
    """
    listed = list(pending_transactions(ground)) if listed is None else listed
    if not listed:
        return []
    decided = ground.decisions.decided()
    watermark = ground.watermark()
    accounted: dict[int, set[str] | None] = {}
    kept = ground.kept.epochs()
    found = []
    for orphan in listed:
        epoch = orphan.name.epoch
        if epoch <= watermark:
            if _is_rubbish(ground, orphan, kept):
                found.append(orphan)
        elif epoch <= decided:
            if epoch not in accounted:
                accounted[epoch] = _accounted(ground, epoch)
            names = accounted[epoch]
            if names is not None and str(orphan.name) not in names:
                found.append(orphan)
    return found


def _is_rubbish(ground: Ground, found: Orphan, kept: frozenset[int]) -> bool:
    """Whether nobody will want this of a settled epoch any more."""
    if found.sink == WAL:
        return found.name.epoch not in kept
    marker = ground.settled.legible(found.name.epoch)
    if marker is None or (marker.manifest is None and marker.sinks):
        # Pruned, damaged, or of a release that did not keep the names: nobody can tell.
        return False
    named = ground.resolved.without(marker.manifest).transactions() if marker.manifest is not None else set()
    return str(found.name) not in named


def _accounted(ground: Ground, epoch: int) -> set[str] | None:
    """The transactions that the valid manifest of a decided epoch names; None when there is none to go by."""
    files = ground.register.files(epoch)
    if files.reserved - files.fates:
        return None
    try:
        manifest = ground.register.manifest(epoch, ground.register.taken(epoch, files))
    except DamagedFile:
        return None
    return manifest.transactions() if manifest is not None else None


def abort_transactions(ground: Ground, chosen: Callable[[TransactionName], bool]) -> int:
    """Abort everything pending whose name is chosen; how many that were."""
    matching = [orphan for orphan in pending_transactions(ground) if chosen(orphan.name)]
    abort_all(ground, matching)
    return len(matching)


def abort_all(ground: Ground, found: list[Orphan]) -> None:
    """Abort these, each where it lives."""
    for orphan in found:
        if orphan.sink == WAL:
            ground.shelf.remove(orphan.handle)
        elif isinstance(sink := ground.way_of(orphan.sink, orphan.handle), TwoPhaseCommitSink):
            sink.abort(orphan.handle)
