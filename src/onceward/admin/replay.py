"""Publishing again what a target that went back has lost, from the segments that `keep_published` has kept.

The target's receipts say which epochs it lacks, and every publication checks them once more inside its own transaction:
nothing that is there is sent a second time. A crash in between leaves fewer epochs to replay. What the target holds
prepared again has its turn among them: a start would commit it later, after newer epochs. A target that fails meanwhile
may have gone back further: it is asked again, and the replay goes on with what it lacks by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from onceward.contracts import AnySink, Receipt, TransactionalWriteAheadSink
from onceward.epoch import (
    DeliveryEnded,
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
    torn,
)
from onceward.errors import ConfigurationError, OncewardError, OutputLost, PublishFailed
from onceward.identity import SinkName
from onceward.journal import Manifest, SinkEntry
from onceward.recovery.targets import receipts_places


@dataclass(frozen=True, slots=True)
class Replay:
    """One epoch in one sink: these slots are published again. `prepared`: by the commit of their transaction, which the
    target holds again; else from the log."""

    epoch: int
    sink: SinkName
    slots: tuple[int, ...]
    rows: int
    prepared: bool = False


class _LacksMore(DeliveryEnded):
    """The target has failed, and lacks more than what is left of the plan."""


@dataclass(frozen=True, slots=True)
class _Step:
    sink: AnySink
    entry: SinkEntry
    manifest: Manifest
    prepared: Sequence[PendingTransaction] = ()

    @property
    def lacking(self) -> Set[tuple[int, SinkName, int]]:
        return {(self.manifest.epoch, self.sink.name, slot.slot) for slot in self.entry.slots}

    @property
    def shown(self) -> Replay:
        slots = tuple(slot.slot for slot in self.entry.slots)
        return Replay(self.manifest.epoch, self.sink.name, slots, self.entry.rows, bool(self.prepared))


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
    """Do it, epoch by epoch; what was published again.

    `PublishFailed` when the target goes back again and again until the deadline.
    """
    clock, limits = context.clock, limits or PublishLimits()
    done: dict[tuple[int, SinkName], Replay] = {}
    went_back_s: float | None = None
    while True:
        context, planned = _planned(context, limits, out_of_order=out_of_order)
        try:
            for number, step in enumerate(planned):
                ask_again = partial(_ask_again, context, limits, planned[number:], out_of_order)
                SinkDelivery(context, limits, before_retry=ask_again).deliver(step.sink, step.entry, step.manifest)
                done[step.manifest.epoch, step.sink.name] = step.shown
            return list(done.values())
        except OutputLost as lost:
            # It went back further, and no call has failed: what it lacks is for `TargetRolledBack` to say.
            try:
                _planned(context, limits, out_of_order=out_of_order)
            except OncewardError:
                raise
            except Exception as error:
                raise lost from error
            raise
        except _LacksMore:
            went_back_s = clock.monotonic() if went_back_s is None else went_back_s
            if (waited_s := clock.monotonic() - went_back_s) > limits.deadline_s:
                raise PublishFailed(
                    f"the target went back again at each failure, for {waited_s:.0f} s",
                    epoch=step.manifest.epoch,
                    sink=step.sink.name,
                    hint="what it lacks is kept: check the target, then give the command again",
                ) from None


def _ask_again(
    context: RunContext, limits: PublishLimits, left: Sequence[_Step], out_of_order: bool, has_waited: bool
) -> None:
    """What only asks to wait need not be listed just now."""
    besides = left[0].prepared if has_waited else ()
    _, planned = _planned(context, limits, out_of_order=out_of_order, besides=besides)
    if {slot for step in planned for slot in step.lacking} - {slot for step in left for slot in step.lacking}:
        raise _LacksMore


def _planned(
    context: RunContext,
    limits: PublishLimits | None,
    *,
    out_of_order: bool,
    besides: Sequence[PendingTransaction] = (),
) -> tuple[RunContext, list[_Step]]:
    context = replace(context, receipts_at=receipts_places(context))
    keep = (limits or PublishLimits()).keep_receipts
    markers = newest_markers(context)
    # In this order: what is committed meanwhile has its receipt then.
    listed = list(pending_transactions(context))
    held = survivors(context, listed)
    receipts, kept = context.receipts(), context.kept.epochs()
    prepared = [*besides, *(one for one, _ in held)]
    lost = torn(context, listed) + missing(context, markers, receipts, prepared, keep_receipts=keep)
    if gone := [one for one in lost if not one.in_log or one.epoch not in kept]:
        raise rolled_back_target(gone, kept)
    lacking = list(_lacking(context, receipts))
    if not out_of_order:
        _refuse_out_of_order(context, [step.shown for step in lacking], receipts)
    return context, sorted([*_prepared(context, held), *lacking], key=lambda step: step.manifest.epoch)


def _prepared(context: RunContext, held: Sequence[tuple[PendingTransaction, Manifest]]) -> Iterator[_Step]:
    by_sink = sorted(held, key=lambda pair: (pair[1].epoch, pair[0].sink))
    for _, found in groupby(by_sink, lambda pair: (pair[1].epoch, pair[0].sink)):
        pairs = list(found)
        prepared, manifest = [one for one, _ in pairs], pairs[0][1]
        if (delivery := delivery_of(context, prepared, manifest)) is not None:
            yield _Step(*delivery, manifest, prepared)


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
