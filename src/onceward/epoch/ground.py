"""What every step of the protocol stands on: who we are, the sinks, and where the durable things are."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from onceward.contracts import AnySink, Clock, DecisionLog, Guarantee, Hooks, Storage
from onceward.contracts.hooks import EpochHook
from onceward.identity import JobIdentity, RunId, SinkName
from onceward.manifest import Register, SettledLog
from onceward.wal import Shelf

log = logging.getLogger("onceward")


@dataclass(frozen=True, slots=True)
class Ground:
    """One job in one run on one checkpoint. Holds no state of its own: every question is put to the storage."""

    job: JobIdentity
    run: RunId
    sinks: tuple[AnySink, ...]
    guarantee: Guarantee
    storage: Storage
    decisions: DecisionLog
    clock: Clock
    adopted: int = -1
    hooks: Hooks = field(default_factory=Hooks)

    @property
    def register(self) -> Register:
        """Manifests, reservations and fates."""
        return Register(self.storage)

    @property
    def settled(self) -> SettledLog:
        """The settled markers."""
        return SettledLog(self.storage)

    @property
    def shelf(self) -> Shelf:
        """The write-ahead segments."""
        return Shelf(self.storage)

    def watermark(self) -> int:
        """The highest epoch that needs nothing any more."""
        return max(self.adopted, self.settled.watermark())

    def sink(self, name: SinkName) -> AnySink | None:
        """The sink of that name, if the job still has it."""
        return next((sink for sink in self.sinks if sink.name == name), None)


def notify(hook: EpochHook, epoch: int) -> None:
    """Tell a hook of what has happened already: it cannot undo it, so its failure must not stop the epoch."""
    try:
        hook(epoch)
    except Exception:
        log.warning("a hook failed in epoch %d; the epoch goes on", epoch, exc_info=True)
