"""Has the target still what was published? A backup that is restored, or a standby that lags and takes over, has not.

The newest settled markers say which receipts there must be. A transaction that a marker names and that is prepared
again in the target (its PREPARE was replicated, its commit was not) is the only copy of its rows: it is committed,
never aborted. What is neither there nor prepared is missing, and the job stops with the epochs' names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from onceward.contracts import AnySink, Guarantee, Receipt, TwoPhaseCommitSink
from onceward.epoch.reap import PendingTransaction, named_by_marker, pending_transactions
from onceward.epoch.run_context import RunContext
from onceward.errors import TargetRolledBack
from onceward.identity import SinkName
from onceward.journal import Manifest, Marker, SinkEntry, SlotEntry
from onceward.wal import WAL, is_segment


@dataclass(frozen=True, slots=True)
class Missing:
    """Slots of a settled epoch that a sink's target has no receipt of."""

    sink: SinkName
    epoch: int
    slots: tuple[int, ...]
    in_log: bool


def survivors(context: RunContext, listed: Iterable[PendingTransaction]) -> list[tuple[PendingTransaction, Manifest]]:
    """Of what the targets hold: the transactions of settled epochs that the marker names and that are whole, with what
    the marker says; the oldest epochs first."""
    return [pair for pair in _settled_with(context, listed) if _is_whole(context, *pair)]


def torn(context: RunContext, listed: Iterable[PendingTransaction]) -> list[Missing]:
    """Of what the targets hold: what the marker names, too, and what is not whole. Nothing can be done with it.

    Somebody may commit it just now: then it is not listed any more, and so it is listed and looked at twice.
    """
    names = {one.name for one, manifest in _settled_with(context, listed) if not _is_whole(context, one, manifest)}
    if not names:
        return []
    again = [one for one in pending_transactions(context) if one.name in names]
    lost: list[Missing] = []
    for one, manifest in _settled_with(context, again):
        if not _is_whole(context, one, manifest):
            slots = [slot for slot in manifest.sinks[one.sink].slots if slot.transaction == str(one.name)]
            lost.append(_missing(one.sink, manifest.epoch, slots))
    return lost


def _settled_with(
    context: RunContext, listed: Iterable[PendingTransaction]
) -> list[tuple[PendingTransaction, Manifest]]:
    watermark = context.watermark()
    found = []
    for one in listed:
        epoch = one.name.epoch
        if one.sink == WAL or epoch > watermark or str(one.name) not in (named_by_marker(context, epoch) or ()):
            continue
        marker = context.settled.legible(epoch)
        if marker is not None and marker.manifest is not None and one.sink in marker.manifest.sinks:
            found.append((one, marker.manifest))
    return sorted(found, key=lambda pair: pair[1].epoch)


def _is_whole(context: RunContext, one: PendingTransaction, manifest: Manifest) -> bool:
    """What is listed under a name may be unfinished: a folder was copied back in which a file was being written."""
    if (delivery := delivery_of(context, [one], manifest)) is None:
        return False
    sink, entry = delivery
    return all(why is None for why in sink.verify([slot.handle for slot in entry.slots]))


def delivery_of(
    context: RunContext, found: Sequence[PendingTransaction], manifest: Manifest
) -> tuple[TwoPhaseCommitSink[object], SinkEntry] | None:
    """How survivors of one epoch and sink are committed: by which variant of it, and as which slots. None if the job
    has no such sink."""
    names, name = {str(one.name) for one in found}, found[0].sink
    entry = manifest.sinks[name]
    slots = tuple(slot for slot in entry.slots if slot.transaction in names)
    sink = context.variant_for(name, slots[0].handle)
    return (sink, replace(entry, slots=slots)) if isinstance(sink, TwoPhaseCommitSink) else None


def newest_markers(context: RunContext) -> list[Marker]:
    """All that are kept, in order; those that cannot be read are passed over."""
    return [marker for epoch in context.settled.epochs() if (marker := context.settled.legible(epoch)) is not None]


def came_back(
    context: RunContext,
    markers: Sequence[Marker],
    receipts: Sequence[Receipt],
    *,
    keep_receipts: int,
    listed: Sequence[PendingTransaction] | None = None,
    besides: Sequence[PendingTransaction] = (),
) -> list[PendingTransaction]:
    """If a target went back: its `survivors`, which must be committed before anything else. The targets are listed, if
    they were not just now (`listed`), only where receipts are gone. `besides` are there, too, though not listed.

    `TargetRolledBack` when receipts of settled epochs are gone and their transactions are not there either. A commit
    that is still under way (its answer was lost, or another driver makes it) may end after its receipt was looked for
    and before its transaction is: so what is in neither is looked for among the receipts once more.
    """
    if listed is None:
        if not missing(context, markers, receipts, keep_receipts=keep_receipts):
            return []
        listed = list(pending_transactions(context))
    held = [*besides, *(one for one, _ in survivors(context, listed))]
    lost = torn(context, listed)
    if missing(context, markers, receipts, held, keep_receipts=keep_receipts):
        lost += missing(context, markers, promised_receipts(context, markers), held, keep_receipts=keep_receipts)
    if lost:
        raise rolled_back_target(lost, context.kept.epochs())
    return held


def promised_receipts(context: RunContext, markers: Sequence[Marker]) -> list[Receipt]:
    """What the targets have, of those sinks of which a marker says that theirs has receipts: no other need answer."""
    found: list[Receipt] = []
    for sink in context.sinks:
        if any(published_in(context, marker, sink.name, has_any=True) for marker in markers) and sink.keeps_receipts:
            try:
                found += sink.receipts(context.job)
            except Exception as error:
                error.add_note(f"sink {sink.name!r}")
                raise
    return found


def missing(
    context: RunContext,
    markers: Sequence[Marker],
    receipts: Sequence[Receipt],
    held: Iterable[PendingTransaction] = (),
    *,
    keep_receipts: int,
) -> list[Missing]:
    """What settled epochs must have left in the targets, and is not there; `held` are prepared in them.

    The markers must have been read before the receipts: another driver may settle epochs in between. Only epochs of
    this generation count, because a copy of the checkpoint may have a target of its own.
    """
    prepared = {str(one.name) for one in held}
    found: list[Missing] = []
    newest_without_receipt = -1
    for sink in context.sinks:
        if sink.keeps_receipts:
            mine = [r for r in receipts if r.generation == context.job.generation and r.sink == sink.name]
            expected = [m for marker in markers if (m := published_in(context, marker, sink.name, has_any=bool(mine)))]
            without = _without_receipt(context, sink, expected, mine, keep_receipts)
            newest_without_receipt = max([newest_without_receipt, *(one.epoch for one in without)])
            found += _not_held(without, expected, prepared)
    # Another driver may have gone on and had receipts pruned since the markers were read.
    return found if newest_without_receipt >= context.settled.watermark() - keep_receipts else []


def _not_held(without: list[Missing], expected: list[Manifest], prepared: set[str]) -> list[Missing]:
    """Without the slots that are prepared in the target. What no marker tells of counts only beside what one does."""
    entries = {manifest.epoch: manifest.sinks for manifest in expected}
    unmarked = [one for one in without if one.epoch not in entries]
    marked = []
    for one in without:
        entry = entries[one.epoch][one.sink] if one.epoch in entries else None
        slots = [slot for slot in entry.slots if slot.slot in one.slots] if entry is not None else []
        if left := [slot for slot in slots if slot.transaction not in prepared]:
            marked.append(_missing(one.sink, one.epoch, left))
    return [*unmarked, *marked] if marked else []


def _missing(sink: SinkName, epoch: int, slots: Sequence[SlotEntry]) -> Missing:
    return Missing(sink, epoch, tuple(slot.slot for slot in slots), all(is_segment(slot.handle) for slot in slots))


def _without_receipt(
    context: RunContext, sink: AnySink, expected: list[Manifest], receipts: list[Receipt], keep_receipts: int
) -> list[Missing]:
    """Of one sink. Receipts older than `keep_receipts` may be pruned; they are asked for only if the oldest one that
    must be there is not: then the target lacks everything after its newest receipt."""
    has = {(r.epoch, r.slot, r.fingerprint) for r in receipts if r.is_whole}
    recent = [m for m in expected if m.epoch >= context.settled.watermark() - keep_receipts]
    if sink.receipts_are_output:
        # Output may be removed by those who use it: only a newest epoch that is missing while older ones are there
        # tells that the target went back.
        recent = recent[-1:] if recent and any(r.epoch < recent[-1].epoch for r in receipts) else []

    def lacking(manifest: Manifest) -> Missing | None:
        slots = [
            slot
            for slot in manifest.sinks[sink.name].slots
            if (manifest.epoch, slot.slot, manifest.fingerprint) not in has
        ]
        return _missing(sink.name, manifest.epoch, slots) if slots else None

    lost = [one for manifest in recent if (one := lacking(manifest)) is not None]
    if not lost or lost[0].epoch != recent[0].epoch or sink.receipts_are_output:
        return lost
    # Not the newest of all: what was published on top of the gap says nothing about what is below it.
    newest = max((r.epoch for r in receipts if r.epoch < lost[0].epoch), default=context.adopted)
    older = [m for m in expected if newest < m.epoch < recent[0].epoch]
    known = [one for m in older if (one := lacking(m)) is not None]
    is_old = expected[0].epoch == min(context.settled.epochs(), default=0)
    return [*(_unmarked(context, sink.name, newest) if is_old else ()), *known, *lost]


def _unmarked(context: RunContext, sink: SinkName, newest: int) -> list[Missing]:
    """Epochs after the target's newest receipt that no marker tells of any more. Of these only the kept ones are known;
    one that was not kept, after others that were, had no rows in the log."""
    kept = context.kept.epochs()
    first_kept = min(kept, default=context.watermark() + 1)
    epochs = range(newest + 1, min(context.settled.epochs(), default=0))
    return [Missing(sink, epoch, (), epoch in kept) for epoch in epochs if epoch in kept or epoch < first_kept]


def published_in(context: RunContext, marker: Marker, sink: SinkName, *, has_any: bool) -> Manifest | None:
    """The manifest, if its epoch left receipts in this sink: not where it went straight to the target, and not where
    receipts were moved to a place that has none of this checkpoint's. What a person has spoken for is not missed."""
    manifest = context.resolved.without(marker.manifest) if marker.manifest is not None else None
    if manifest is None or manifest.immediate or manifest.guarantee != Guarantee.EXACTLY_ONCE.value:
        return None
    entry = manifest.sinks.get(sink)
    if entry is None or not entry.slots or manifest.job.generation != context.job.generation:
        return None
    has_moved = entry.receipts_at and entry.receipts_at != context.receipts_at.get(sink, entry.receipts_at)
    return None if has_moved and not has_any else manifest


def rolled_back_target(lost: Sequence[Missing], kept: frozenset[int]) -> TargetRolledBack:
    """The error that names them, and the way out that there is."""
    sinks = sorted({one.sink for one in lost})
    told = "; ".join(
        f"sink {name!r} lacks {as_ranges(one.epoch for one in lost if one.sink == name)}" for name in sinks
    )
    first = min(one.epoch for one in lost)
    if all(one.in_log and one.epoch in kept for one in lost):
        way_out = "the staged rows are kept: `onceward replay FILE` publishes what the target lacks, in order"
    else:
        way_out = (
            "rows are no longer staged (see `keep_published`): restore a newer state of the target; or, if all of the "
            f"job's targets went back, `onceward rewind CHECKPOINT {first} --job FILE --went-back` computes them again"
        )
    return TargetRolledBack(
        f"the target no longer has what was published: {told}. It was restored, or a lagging standby took its place",
        epoch=first,
        sink=sinks[0] if len(sinks) == 1 else None,
        hint=f"{way_out}; if the rows of one were brought in by hand, "
        f"`onceward resolve epoch-is-published FILE {first}`; to go on without one, "
        f"`onceward resolve accept-loss FILE {first}` (both take --sink)",
    )


def as_ranges(epochs: Iterable[int]) -> str:
    """Epochs for people: `epochs 3 to 5, 9`."""
    runs: list[list[int]] = []
    for epoch in sorted(set(epochs)):
        if runs and epoch == runs[-1][-1] + 1:
            runs[-1].append(epoch)
        else:
            runs.append([epoch])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"{'epoch' if len(runs) == 1 and len(runs[0]) == 1 else 'epochs'} {', '.join(texts)}"
