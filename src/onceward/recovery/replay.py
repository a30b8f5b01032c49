"""Publishing again what a target that went back has lost, from the segments that `keep_published` has kept.

The target's receipts say which epochs it lacks, and every publication checks them once more inside its own transaction:
nothing that is there is sent a second time. A crash in between leaves fewer epochs to replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from onceward.contracts import AnySink, Receipt, TransactionalWriteAheadSink
from onceward.epoch import Ground, Publisher, PublishLimits, missing, newest_markers, rolled_back_target
from onceward.errors import ConfigurationError
from onceward.identity import SinkName
from onceward.manifest import Manifest, SinkEntry


@dataclass(frozen=True, slots=True)
class Replay:
    """One epoch in one sink: these slots are published again."""

    epoch: int
    sink: SinkName
    slots: tuple[int, ...]
    rows: int


def plan_replay(ground: Ground, limits: PublishLimits | None = None, *, out_of_order: bool = False) -> list[Replay]:
    """What the targets lack and the checkpoint has kept, in order. Changes nothing.

    `TargetRolledBack` when an epoch is missing that was not kept: publishing the later ones would leave a gap. Refused
    too, unless it is asked for, when a sink has newer epochs than one that it lacks.
    """
    keep = (limits or PublishLimits()).keep_receipts
    markers = newest_markers(ground)
    receipts = [receipt for sink in ground.sinks for receipt in sink.receipts(ground.job)]
    kept = ground.kept.epochs()
    lost = missing(ground, markers, receipts, keep_receipts=keep)
    if gone := [one for one in lost if not one.in_log or one.epoch not in kept]:
        raise rolled_back_target(gone, kept)
    planned = [
        Replay(manifest.epoch, sink.name, tuple(slot.slot for slot in entry.slots), entry.rows)
        for sink, entry, manifest in _lacking(ground, receipts)
    ]
    if not out_of_order:
        _refuse_out_of_order(ground, planned, receipts)
    return planned


def _refuse_out_of_order(ground: Ground, planned: Sequence[Replay], receipts: Sequence[Receipt]) -> None:
    for one in planned:
        newer = [r.epoch for r in receipts if r.sink == one.sink and r.generation == ground.job.generation]
        if max(newer, default=-1) > one.epoch:
            raise ConfigurationError(
                f"the target lacks epoch {one.epoch} and has epoch {max(newer)}: it went back while the job ran",
                epoch=one.epoch,
                sink=one.sink,
                hint="where rows are only added, give --out-of-order: the older ones come after the newer ones; where "
                "they replace each other by key, older values would win: restore the target once more, as it was, and "
                "replay then, before the job is started",
            )


def replay(ground: Ground, limits: PublishLimits | None = None, *, out_of_order: bool = False) -> list[Replay]:
    """Do it, epoch by epoch; what was published again."""
    planned = plan_replay(ground, limits, out_of_order=out_of_order)
    publisher = Publisher(ground, limits)
    receipts = [receipt for sink in ground.sinks for receipt in sink.receipts(ground.job)]
    for sink, entry, manifest in _lacking(ground, receipts):
        publisher.deliver(sink, entry, manifest)
    return planned


def _lacking(ground: Ground, receipts: Sequence[Receipt]) -> Iterator[tuple[AnySink, SinkEntry, Manifest]]:
    """The kept epochs in order, each with the slots of a sink that have no receipt."""
    ours = [r for r in receipts if r.generation == ground.job.generation]
    has = {(r.sink, r.epoch, r.slot) for r in ours}
    oldest = {sink.name: min((r.epoch for r in ours if r.sink == sink.name), default=0) for sink in ground.sinks}
    for epoch in sorted(ground.kept.epochs()):
        marker = ground.kept.marker(epoch)
        manifest = ground.resolved.without(marker.manifest) if marker is not None and marker.manifest else None
        if manifest is None or manifest.job.generation != ground.job.generation:
            continue
        for name, entry in manifest.sinks.items():
            # What is older than every receipt that the target has was pruned there: it is in.
            slots = tuple(
                s for s in entry.slots if (name, epoch, s.slot) not in has and epoch > oldest.get(name, 0) - 1
            )
            sink = ground.way_of(name, slots[0].handle) if slots else None
            if isinstance(sink, TransactionalWriteAheadSink):
                yield sink, replace(entry, slots=slots), manifest
