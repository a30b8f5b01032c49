"""What is there: the engine's logs, the register, the watermark, the targets' receipts, and what they still hold.

The order is fixed: decisions first, targets last. Whatever another driver does meanwhile can then only make
the survey look older than it is, and every step of the plan checks again before it acts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from onceward.contracts import Receipt, WriteAheadSink
from onceward.epoch import (
    EpochSurvey,
    PendingTransaction,
    PublishLimits,
    RunContext,
    came_back,
    newest_markers,
    orphans,
    pending_transactions,
    survey_epoch,
)
from onceward.errors import DamagedFile, NewerFormat, TargetRolledBack
from onceward.identity import Fingerprint, Generation, SinkName
from onceward.journal import EpochFiles, Marker, Resolved, Restored
from onceward.recovery.rollback import later_receipts, rows_delivered


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything the plan is made from.

    `watermark_fingerprint` is what the newest settled epoch covered, `watermark_barrier` what the engine's log says of
    it now. `generation` is this checkpoint's own; `known_generations` are those whose output in the target was accepted
    before. `is_identified` is False while the checkpoint has no identity of ours, `is_copy` True where the directory is
    another than that says; `watermark_damaged` says why the newest marker cannot be read. `restored` says from which
    savepoint the checkpoint was made; `later` is what the targets have from after it, `delivered` how many rows of that
    each sink got, as far as its former checkpoint tells. Of a target that went back, `came_back` is what it holds
    prepared again of settled epochs, `rolled_back` says what it lacks altogether.
    """

    decided: int
    planned: int
    watermark: int
    watermark_fingerprint: Fingerprint | None
    watermark_barrier: Fingerprint | None
    epochs: Mapping[int, EpochSurvey]
    receipts: tuple[Receipt, ...]
    orphans: tuple[PendingTransaction, ...]
    sinks: frozenset[SinkName]
    generation: Generation
    known_generations: frozenset[Generation]
    resolved: Resolved = field(default_factory=Resolved)
    is_identified: bool = True
    is_copy: bool = False
    watermark_damaged: str | None = None
    restored: Restored | None = None
    markers: Sequence[Marker] = ()
    came_back: Sequence[PendingTransaction] = ()
    rolled_back: TargetRolledBack | None = None
    later: Sequence[Receipt] = ()
    delivered: Mapping[tuple[SinkName, int], int] = field(default_factory=dict)

    def is_outdated(self, context: RunContext) -> bool:
        """Whether the engine's logs or the watermark moved since: another driver is at work, and what looks like a
        contradiction between the logs (read first) and the targets (read last) may be nothing but its progress."""
        now = (context.decisions.decided(), context.decisions.planned(), context.watermark())
        return now != (self.decided, self.planned, self.watermark)


def take_survey(
    context: RunContext,
    *,
    known_generations: frozenset[Generation],
    is_identified: bool = True,
    is_copy: bool = False,
    restored: Restored | None = None,
    limits: PublishLimits | None = None,
) -> Survey:
    """Look at everything once. Writes nothing."""
    decided, planned = context.decisions.decided(), context.decisions.planned()
    register = context.register.epochs()
    watermark = context.watermark()
    marker, damaged = _marker(context, watermark)
    barrier = context.decisions.barrier(watermark)
    newest = max([decided, planned, *register])
    epochs = {}
    for epoch in range(min(watermark, decided) + 1, newest + 1):
        files = register.get(epoch, EpochFiles())
        epochs[epoch] = survey_epoch(context, epoch, partial(context.register.taken, epoch, files))
    markers = newest_markers(context)
    receipts = context.receipts()
    listed = list(pending_transactions(context))
    again, rolled_back = _looked_back(context, markers, receipts, listed, limits or PublishLimits())
    for found in epochs.values():
        if found.epoch > decided:
            receipts += _remembered(context, found)
    known = known_generations | {context.job.generation}
    later = later_receipts(receipts, restored, known) if restored is not None else []
    return Survey(
        decided=decided,
        planned=planned,
        watermark=watermark,
        watermark_fingerprint=marker.fingerprint if marker else None,
        watermark_barrier=barrier.fingerprint if barrier else None,
        epochs=epochs,
        receipts=tuple(receipts),
        orphans=tuple(orphans(context, listed)),
        sinks=frozenset(sink.name for sink in context.sinks),
        generation=context.job.generation,
        known_generations=known,
        resolved=context.resolved,
        is_identified=is_identified,
        is_copy=is_copy,
        watermark_damaged=damaged,
        restored=restored,
        markers=markers,
        came_back=again,
        rolled_back=rolled_back,
        later=later,
        delivered=rows_delivered(restored) if restored is not None and later else {},
    )


def _looked_back(
    context: RunContext,
    markers: Sequence[Marker],
    receipts: Sequence[Receipt],
    listed: Sequence[PendingTransaction],
    limits: PublishLimits,
) -> tuple[Sequence[PendingTransaction], TargetRolledBack | None]:
    try:
        return came_back(context, markers, receipts, listed=listed, keep_receipts=limits.keep_receipts), None
    except TargetRolledBack as error:
        return (), error


def _marker(context: RunContext, watermark: int) -> tuple[Marker | None, str | None]:
    """A marker that is damaged still tells, by its name, that its epoch is settled."""
    try:
        return context.settled.marker(watermark), None
    except NewerFormat:
        raise
    except DamagedFile as error:
        return None, error.message


def _remembered(context: RunContext, found: EpochSurvey) -> Iterator[Receipt]:
    """What committers know of an epoch that is not decided. They are told of a slot only after its decision: it was
    made, and then forgotten. Computed again, the epoch might be cut into other slots, and those they know be left out.
    """
    if (manifest := found.manifest) is None or manifest.immediate:
        return
    job, committers = manifest.job, {s.name: s.committer for s in context.sinks if isinstance(s, WriteAheadSink)}
    for name, entry in manifest.sinks.items():
        if (committer := committers.get(name)) is not None:
            committer.open(job, name)
            for slot in entry.slots:
                if committer.is_checkpoint_committed(slot.slot, found.epoch):
                    yield Receipt(job.name, job.generation, name, found.epoch, slot.slot, manifest.fingerprint)
