"""Publishing again what a target that went back has lost, from the segments that `keep_published` has kept.

The target's receipts say which epochs it lacks, and every publication checks them once more inside its own transaction:
nothing that is there is sent a second time. A crash in between leaves fewer epochs to replay. What the target holds
prepared again has its turn among them: a start would commit it later, after newer epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from onceward.contracts import AnySink, Receipt, TransactionalWriteAheadSink, TwoPhaseCommitSink
from onceward.epoch import (
    PendingTransaction,
    PublishLimits,
    RunContext,
    SinkDelivery,
    delivery_of,
    missing,
    newest_markers,
    pending_transactions,
    rolled_back_target,
    survivors,
)
from onceward.errors import ConfigurationError
from onceward.identity import SinkName
from onceward.journal import Manifest, SinkEntry
from onceward.recovery.targets import receipts_places
from onceward.wal import WAL


@dataclass(frozen=True, slots=True)
class Replay:
    """One epoch in one sink: these slots are published again. `prepared`: by the commit of their transaction, which the
    target holds again; else from the log."""

    epoch: int
    sink: SinkName
    slots: tuple[int, ...]
    rows: int
    prepared: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    sink: AnySink
    entry: SinkEntry
    manifest: Manifest

    @property
    def shown(self) -> Replay:
        slots = tuple(slot.slot for slot in self.entry.slots)
        prepared = isinstance(self.sink, TwoPhaseCommitSink)
        return Replay(self.manifest.epoch, self.sink.name, slots, self.entry.rows, prepared)


def plan_replay(
    context: RunContext, limits: PublishLimits | None = None, *, out_of_order: bool = False
) -> list[Replay]:
    """What the targets lack and the checkpoint has kept, in order. Changes nothing.

    `TargetRolledBack` when an epoch is missing that was not kept: publishing the later ones would leave a gap. Refused
    too, unless it is asked for, when a sink has newer epochs than one that it lacks.
    """
    _, planned = _planned(context, limits, out_of_order=out_of_order)
    return [step.shown for step in planned]


def replay(context: RunContext, limits: PublishLimits | None = None, *, out_of_order: bool = False) -> list[Replay]:
    """Do it, epoch by epoch; what was published again."""
    context, planned = _planned(context, limits, out_of_order=out_of_order)
    delivery = SinkDelivery(context, limits)
    for step in planned:
        delivery.deliver(step.sink, step.entry, step.manifest)
    return [step.shown for step in planned]


def _planned(
    context: RunContext, limits: PublishLimits | None, *, out_of_order: bool
) -> tuple[RunContext, list[_Step]]:
    context = replace(context, receipts_at=receipts_places(context))
    keep = (limits or PublishLimits()).keep_receipts
    markers = newest_markers(context)
    # In this order: what is committed meanwhile has its receipt then.
    held = [one for one in pending_transactions(context) if one.sink != WAL]
    receipts, kept = context.receipts(), context.kept.epochs()
    lost = missing(context, markers, receipts, held, keep_receipts=keep)
    if gone := [one for one in lost if not one.in_log or one.epoch not in kept]:
        raise rolled_back_target(gone, kept)
    lacking = list(_lacking(context, receipts))
    if not out_of_order:
        _refuse_out_of_order(context, [step.shown for step in lacking], receipts)
    return context, sorted([*_prepared(context, held), *lacking], key=lambda step: step.manifest.epoch)


def _prepared(context: RunContext, held: Sequence[PendingTransaction]) -> Iterator[_Step]:
    for _, found in groupby(survivors(context, held), lambda pair: (pair[1].epoch, pair[0].sink)):
        pairs = list(found)
        manifest = pairs[0][1]
        if (delivery := delivery_of(context, [one for one, _ in pairs], manifest)) is not None:
            yield _Step(*delivery, manifest)


def _refuse_out_of_order(context: RunContext, lacking: Sequence[Replay], receipts: Sequence[Receipt]) -> None:
    for one in lacking:
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


def _lacking(context: RunContext, receipts: Sequence[Receipt]) -> Iterator[_Step]:
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
                yield _Step(sink, replace(entry, slots=slots), manifest)
