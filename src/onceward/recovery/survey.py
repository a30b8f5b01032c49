"""What is there: the engine's logs, the register, the watermark, the targets' receipts, and what they still hold.

The order is fixed (DESIGN §4): decisions first, targets last. Whatever another driver does meanwhile can then only make
the survey look older than it is, and every step of the plan checks again before it acts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from onceward.contracts import Receipt, WriteAheadSink
from onceward.epoch import Ground, Orphan, orphans
from onceward.errors import DamagedFile, NewerFormat
from onceward.identity import Fingerprint, Generation, SinkName
from onceward.manifest import EpochFiles, Manifest, Marker, Resolved


@dataclass(frozen=True, slots=True)
class EpochSurvey:
    """One epoch above the watermark (or the undecided one at it). `damaged` says why its manifest cannot be read."""

    epoch: int
    fingerprint: Fingerprint | None
    files: EpochFiles
    manifest: Manifest | None
    engine_made: bool = False
    damaged: str | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything the plan is made from.

    `watermark_fingerprint` is what the newest settled epoch covered, `watermark_barrier` what the engine's log says of
    it now. `generation` is this checkpoint's own; `known_generations` are those whose output in the target was accepted
    before. `is_identified` is False while the checkpoint has no identity of ours; `watermark_damaged` says why the
    newest marker cannot be read.
    """

    decided: int
    planned: int
    watermark: int
    watermark_fingerprint: Fingerprint | None
    watermark_barrier: Fingerprint | None
    epochs: Mapping[int, EpochSurvey]
    receipts: tuple[Receipt, ...]
    orphans: tuple[Orphan, ...]
    sinks: frozenset[SinkName]
    generation: Generation
    known_generations: frozenset[Generation]
    resolved: Resolved = field(default_factory=Resolved)
    is_identified: bool = True
    watermark_damaged: str | None = None

    def is_outdated(self, ground: Ground) -> bool:
        """Whether the engine's logs or the watermark moved since: another driver is at work, and what looks like a
        contradiction between the logs (read first) and the targets (read last) may be nothing but its progress."""
        now = (ground.decisions.decided(), ground.decisions.planned(), ground.watermark())
        return now != (self.decided, self.planned, self.watermark)


def take_survey(ground: Ground, *, known_generations: frozenset[Generation], is_identified: bool = True) -> Survey:
    """Look at everything once. Writes nothing."""
    decided, planned = ground.decisions.decided(), ground.decisions.planned()
    register = ground.register.epochs()
    watermark = ground.watermark()
    marker, damaged = _marker(ground, watermark)
    barrier = ground.decisions.barrier(watermark)
    newest = max([decided, planned, *register])
    epochs = {epoch: _epoch(ground, epoch, register) for epoch in range(min(watermark, decided) + 1, newest + 1)}
    receipts = [receipt for sink in ground.sinks for receipt in sink.receipts(ground.job)]
    for found in epochs.values():
        if found.epoch > decided:
            receipts += _remembered(ground, found)
    return Survey(
        decided=decided,
        planned=planned,
        watermark=watermark,
        watermark_fingerprint=marker.fingerprint if marker else None,
        watermark_barrier=barrier.fingerprint if barrier else None,
        epochs=epochs,
        receipts=tuple(receipts),
        orphans=tuple(orphans(ground)),
        sinks=frozenset(sink.name for sink in ground.sinks),
        generation=ground.job.generation,
        known_generations=known_generations | {ground.job.generation},
        resolved=ground.resolved,
        is_identified=is_identified,
        watermark_damaged=damaged,
    )


def _marker(ground: Ground, watermark: int) -> tuple[Marker | None, str | None]:
    """A marker that is damaged still tells, by its name, that its epoch is settled."""
    try:
        return ground.settled.marker(watermark), None
    except NewerFormat:
        raise
    except DamagedFile as error:
        return None, error.message


def _remembered(ground: Ground, found: EpochSurvey) -> Iterator[Receipt]:
    """What committers know of an epoch that is not decided. They are told of a slot only after its decision: it was
    made, and then forgotten. Computed again, the epoch might be cut into other slots, and those they know be left out.
    """
    if (manifest := found.manifest) is None or manifest.straight:
        return
    job, committers = manifest.job, {s.name: s.committer for s in ground.sinks if isinstance(s, WriteAheadSink)}
    for name, entry in manifest.sinks.items():
        if (committer := committers.get(name)) is not None:
            committer.open(job, name)
            for slot in entry.slots:
                if committer.is_checkpoint_committed(slot.slot, found.epoch):
                    yield Receipt(job.name, job.generation, name, found.epoch, slot.slot, manifest.fingerprint)


def _epoch(ground: Ground, epoch: int, register: Mapping[int, EpochFiles]) -> EpochSurvey:
    files = register.get(epoch, EpochFiles())
    barrier = ground.decisions.barrier(epoch)
    manifest, damaged = None, None
    try:
        manifest = ground.register.manifest(epoch, ground.register.taken(epoch, files))
    except NewerFormat:
        raise
    except DamagedFile as error:
        damaged = error.message
    return EpochSurvey(
        epoch=epoch,
        fingerprint=barrier.fingerprint if barrier else None,
        files=files,
        manifest=manifest,
        engine_made=ground.decisions.is_engine_made(epoch),
        damaged=damaged,
    )
