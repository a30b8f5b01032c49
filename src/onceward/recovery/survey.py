"""What is there: the engine's logs, the register, the watermark, the targets' receipts, and what they still hold.

The order is fixed (DESIGN §4): decisions first, targets last. Whatever another driver does meanwhile can then only make
the survey look older than it is, and every step of the plan checks again before it acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onceward.contracts import Receipt
from onceward.epoch import Ground, Orphan, orphans
from onceward.identity import Fingerprint, Generation, SinkName
from onceward.manifest import EpochFiles, Manifest


@dataclass(frozen=True, slots=True)
class EpochSurvey:
    """One epoch above the watermark (or the undecided one at it)."""

    epoch: int
    fingerprint: Fingerprint | None
    files: EpochFiles
    manifest: Manifest | None
    engine_made: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything the plan is made from.

    `watermark_fingerprint` is what the newest settled epoch covered, `watermark_barrier` what the engine's log says of
    it now. `generation` is this checkpoint's own; `known_generations` are those whose output in the target was accepted
    before.
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

    def is_outdated(self, ground: Ground) -> bool:
        """Whether the engine's logs moved since: another driver is at work, and what looks like a contradiction between
        the logs (read first) and the targets (read last) may be nothing but its progress."""
        return (ground.decisions.decided(), ground.decisions.planned()) != (self.decided, self.planned)


def take_survey(ground: Ground, *, known_generations: frozenset[Generation]) -> Survey:
    """Look at everything once. Writes nothing."""
    decided, planned = ground.decisions.decided(), ground.decisions.planned()
    register = ground.register.epochs()
    watermark = ground.watermark()
    marker, barrier = ground.settled.marker(watermark), ground.decisions.barrier(watermark)
    newest = max([decided, planned, *register])
    epochs = {epoch: _epoch(ground, epoch, register) for epoch in range(min(watermark, decided) + 1, newest + 1)}
    receipts = tuple(receipt for sink in ground.sinks for receipt in sink.receipts(ground.job))
    return Survey(
        decided=decided,
        planned=planned,
        watermark=watermark,
        watermark_fingerprint=marker.fingerprint if marker else None,
        watermark_barrier=barrier.fingerprint if barrier else None,
        epochs=epochs,
        receipts=receipts,
        orphans=tuple(orphans(ground)),
        sinks=frozenset(sink.name for sink in ground.sinks),
        generation=ground.job.generation,
        known_generations=known_generations | {ground.job.generation},
    )


def _epoch(ground: Ground, epoch: int, register: Mapping[int, EpochFiles]) -> EpochSurvey:
    files = register.get(epoch, EpochFiles())
    barrier = ground.decisions.barrier(epoch)
    return EpochSurvey(
        epoch=epoch,
        fingerprint=barrier.fingerprint if barrier else None,
        files=files,
        manifest=ground.register.manifest(epoch, ground.register.taken(epoch, files)),
        engine_made=ground.decisions.is_engine_made(epoch),
    )
