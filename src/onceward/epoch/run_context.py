"""What every step of the protocol stands on: who we are, the sinks, and where the durable things are."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from onceward.contracts import (
    AnySink,
    Clock,
    DecisionLog,
    Guarantee,
    Handle,
    Hooks,
    Receipt,
    Storage,
    TwoPhaseCommitSink,
)
from onceward.contracts.events import Event, Listener
from onceward.contracts.hooks import EpochHook
from onceward.identity import JobIdentity, RunId, SinkName
from onceward.journal import Diversion, KeptLog, Register, Resolved, SettledLog
from onceward.wal import SegmentStore, is_segment

log = logging.getLogger("onceward")


@dataclass(frozen=True, slots=True)
class RunContext:
    """One job in one run on one checkpoint. Holds no state of its own: every question is put to the storage."""

    job: JobIdentity
    run: RunId
    sinks: tuple[AnySink, ...]
    guarantee: Guarantee
    storage: Storage
    decisions: DecisionLog
    clock: Clock
    adopted: int = -1
    receipts_at: Mapping[SinkName, str] = field(default_factory=dict)
    target_facts: Mapping[SinkName, Mapping[str, str]] = field(default_factory=dict)
    diverted: Mapping[tuple[int, SinkName], Diversion] = field(default_factory=dict)
    resolved: Resolved = field(default_factory=Resolved)
    hooks: Hooks = field(default_factory=Hooks)
    listeners: tuple[Listener, ...] = ()

    @property
    def register(self) -> Register:
        """Manifests, reservations and fates."""
        return Register(self.storage)

    @property
    def settled(self) -> SettledLog:
        """The settled markers."""
        return SettledLog(self.storage)

    @property
    def kept(self) -> KeptLog:
        """Published epochs whose segments are kept."""
        return KeptLog(self.storage)

    @property
    def segments(self) -> SegmentStore:
        """The write-ahead segments."""
        return SegmentStore(self.storage)

    def emit(self, event: Event) -> None:
        """Tell every listener of what has happened already; that one of them fails must not stop the epoch."""
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                text = "a listener failed in epoch %d; the epoch goes on"
                log.warning(text, event.epoch, exc_info=True, extra={"epoch": event.epoch})

    def watermark(self) -> int:
        """The highest epoch that needs nothing any more."""
        return max(self.adopted, self.settled.watermark())

    def sink(self, name: SinkName) -> AnySink | None:
        """The sink of that name, if the job still has it."""
        return next((sink for sink in self.sinks if sink.name == name), None)

    def receipts(self) -> list[Receipt]:
        """What the targets say that they have of this job."""
        return [receipt for sink in self.sinks for receipt in sink.receipts(self.job)]

    def variants(self) -> Iterator[AnySink]:
        """Every sink, and the alternate to its target where it has one."""
        for sink in self.sinks:
            yield sink
            if sink.alternate is not None:
                yield sink.alternate

    def variant_for(self, name: SinkName, handle: Handle) -> AnySink | None:
        """The variant of the sink by which this handle was staged, if the job still has it."""
        logged = is_segment(handle)
        staged_by = (
            variant
            for variant in self.variants()
            if variant.name == name and isinstance(variant, TwoPhaseCommitSink) != logged
        )
        return next(staged_by, None)


def notify(hook: EpochHook, epoch: int) -> None:
    """Tell a hook of what has happened already: it cannot undo it, so its failure must not stop the epoch."""
    try:
        hook(epoch)
    except Exception:
        log.warning("a hook failed in epoch %d; the epoch goes on", epoch, exc_info=True, extra={"epoch": epoch})
