"""Publishing again what a target that went back has lost, from the segments that `keep_published` has kept.

The target's receipts say which epochs it lacks, and every publication checks them once more inside its own transaction:
nothing that is there is sent a second time. A crash in between leaves fewer epochs to replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from onceward.contracts import AnySink, Receipt, TransactionalWriteAheadSink
from onceward.epoch import (
    PublishLimits,
    RunContext,
    SinkDelivery,
    missing,
    newest_markers,
    pending_transactions,
    rolled_back_target,
)
from onceward.errors import ConfigurationError
from onceward.identity import SinkName
from onceward.journal import Manifest, SinkEntry
from onceward.recovery.targets import receipts_places
from onceward.wal import WAL


@dataclass(frozen=True, slots=True)
class Replay:
    """One epoch in one sink: these slots are published again."""

    epoch: int
    sink: SinkName
    slots: tuple[int, ...]
    rows: int


def plan_replay(
    context: RunContext, limits: PublishLimits | None = None, *, out_of_order: bool = False
) -> list[Replay]:
    """What the targets lack and the checkpoint has kept, in order. Changes nothing.

    `TargetRolledBack` when an epoch is missing that was not kept: publishing the later ones would leave a gap. Refused
    too, unless it is asked for, when a sink has newer epochs than one that it lacks.
    """
    _, planned = _planned(context, limits, out_of_order=out_of_order)
    return [replayed for replayed, *_ in planned]


def replay(context: RunContext, limits: PublishLimits | None = None, *, out_of_order: bool = False) -> list[Replay]:
    """Do it, epoch by epoch; what was published again."""
    context, planned = _planned(context, limits, out_of_order=out_of_order)
    delivery = SinkDelivery(context, limits)
    for _, sink, entry, manifest in planned:
        delivery.deliver(sink, entry, manifest)
    return [replayed for replayed, *_ in planned]


def _planned(
    context: RunContext, limits: PublishLimits | None, *, out_of_order: bool
) -> tuple[RunContext, list[tuple[Replay, AnySink, SinkEntry, Manifest]]]:
    context = replace(context, receipts_at=receipts_places(context))
    keep = (limits or PublishLimits()).keep_receipts
    markers = newest_markers(context)
    receipts = [receipt for sink in context.sinks for receipt in sink.receipts(context.job)]
    kept = context.kept.epochs()
    # What is prepared again is committed at the next start.
    held = [one for one in pending_transactions(context) if one.sink != WAL]
    lost = missing(context, markers, receipts, held, keep_receipts=keep)
    if gone := [one for one in lost if not one.in_log or one.epoch not in kept]:
        raise rolled_back_target(gone, kept)
    planned = [
        (Replay(manifest.epoch, sink.name, tuple(slot.slot for slot in entry.slots), entry.rows), sink, entry, manifest)
        for sink, entry, manifest in _lacking(context, receipts)
    ]
    if not out_of_order:
        _refuse_out_of_order(context, [replayed for replayed, *_ in planned], receipts)
    return context, planned


def _refuse_out_of_order(context: RunContext, planned: Sequence[Replay], receipts: Sequence[Receipt]) -> None:
    for one in planned:
        newer = [r.epoch for r in receipts if r.sink == one.sink and r.generation == context.job.generation]
        if max(newer, default=-1) > one.epoch:
            raise ConfigurationError(
                f"the target lacks epoch {one.epoch} and has epoch {max(newer)}: it went back while the job ran",
                epoch=one.epoch,
                sink=one.sink,
                hint="where rows are only added, give --out-of-order: the older ones come after the newer ones; where "
                "they replace each other by key, older values would win: restore the target once more, as it was, and "
                "replay then, before the job is started",
            )


def _lacking(context: RunContext, receipts: Sequence[Receipt]) -> Iterator[tuple[AnySink, SinkEntry, Manifest]]:
    """The kept epochs in order, each with the slots of a sink that have no receipt, by the rule of the alarm."""
    markers = {marker.epoch: marker for marker in newest_markers(context)}
    markers |= {epoch: marker for epoch in context.kept.epochs() if (marker := context.kept.legible(epoch)) is not None}
    ordered = [markers[epoch] for epoch in sorted(markers)]
    everything = context.watermark() + 1
    lost = {(one.sink, one.epoch): one for one in missing(context, ordered, receipts, keep_receipts=everything)}
    for epoch in sorted(context.kept.epochs() & markers.keys()):
        manifest = markers[epoch].manifest
        if manifest is None:
            continue
        for name, entry in context.resolved.without(manifest).sinks.items():
            slots = tuple(s for s in entry.slots if (name, epoch) in lost and s.slot in lost[name, epoch].slots)
            sink = context.variant_for(name, slots[0].handle) if slots else None
            if isinstance(sink, TransactionalWriteAheadSink):
                yield sink, replace(entry, slots=slots), manifest
