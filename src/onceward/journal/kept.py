"""Published epochs whose segments are kept for a while, so that a target which went back can be given them again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from onceward.contracts import Storage
from onceward.durations import text_in_seconds
from onceward.errors import ConfigurationError
from onceward.journal.settled import FOLDER as SETTLED
from onceward.journal.settled import Marker, SettledLog

FOLDER: Final = "published"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long: so many epochs, or so many seconds after they were settled. The default keeps none."""

    epochs: int | None = 0
    seconds: float | None = None

    @staticmethod
    def parse(keep: str | int, *, option: str = "keep_published") -> Retention:
        """As a user gives it to that option: a number of epochs, or a time such as "24 hours"."""
        if isinstance(keep, int) and not isinstance(keep, bool) and keep >= 0:
            return Retention(epochs=keep)
        seconds = text_in_seconds(keep) if isinstance(keep, str) else None
        if seconds is None:
            raise ConfigurationError(
                f"{option} {keep!r} is neither a number of epochs nor a time",
                hint='say "24 hours", "7 days", or a number of epochs; 0 keeps none',
            )
        return Retention(epochs=None, seconds=seconds)

    @property
    def keeps_any(self) -> bool:
        """Whether anything is kept at all."""
        return self.epochs is None or self.epochs > 0

    def is_over(self, marker: Marker, *, newer: int, now: datetime) -> bool:
        """Whether an epoch, of which `newer` kept ones are newer, has been kept long enough."""
        if self.epochs is not None:
            return newer >= self.epochs
        return self.seconds is None or (now - marker.settled_at).total_seconds() > self.seconds


class KeptLog:
    """A copy of the marker of each kept epoch, under `published/`. As long as it stands, the epoch's segments stay."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._log = SettledLog(storage, folder=FOLDER)

    def epochs(self) -> frozenset[int]:
        """Which epochs are kept, by one listing."""
        return frozenset(self._log.epochs())

    def marker(self, epoch: int) -> Marker | None:
        """What is known of a kept epoch, its manifest above all."""
        return self._log.marker(epoch)

    def legible(self, epoch: int) -> Marker | None:
        """The same, None too where it is damaged: its epoch can then no longer be replayed."""
        return self._log.legible(epoch)

    def keep(self, marker: Marker) -> None:
        """Before the epoch is settled: from then on nobody else would keep its segments."""
        self._log.write(marker)

    def forget(self, epoch: int) -> None:
        """Its segments may go now; whoever finds them without this removes them."""
        self._log.forget(epoch)


def forget_settled(storage: Storage, first: int) -> None:
    """Drop all that says that epochs from `first` on were published, durably: they have not happened, or will again.

    The copies of markers go first: as long as the marker stands, the command that asked for it can be given again.
    """
    for log, folder in ((SettledLog(storage, folder=FOLDER), FOLDER), (SettledLog(storage), SETTLED)):
        for epoch in reversed(log.epochs()):
            if epoch >= first:
                log.forget(epoch)
                storage.sync(folder)
