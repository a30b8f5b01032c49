"""Where segments lie and how they are found again. All write-ahead sinks of a job share a slot's one segment."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from onceward.contracts import Handle, SlotContext, Storage
from onceward.identity import JobIdentity, SinkName, TransactionName, sink_digest

FOLDER: Final = "wal"
WAL: Final = SinkName("write-ahead log")
"""The name that stands for the log itself in the names of its segments."""


def is_segment(handle: Handle) -> bool:
    """Whether a slot's rows wait in the log. If not, they wait in the target."""
    name = TransactionName.parse(str(handle.get("transaction")))
    return name is not None and name.sink == sink_digest(WAL)


@dataclass(frozen=True, slots=True)
class SegmentStore:
    """`wal/<epoch>/<transaction>.arrow`: the name alone tells whose segment it is."""

    storage: Storage

    def path(self, context: SlotContext) -> str:
        """Where this attempt's segment belongs."""
        return f"{FOLDER}/{context.epoch}/{context.transaction}.arrow"

    def pending(self, job: JobIdentity, *, besides: frozenset[int] = frozenset()) -> Iterable[Handle]:
        """Every segment of this job and generation that has not been removed, whole or torn; not those of the epochs
        `besides`, which are kept though they are published."""
        for epoch in self.storage.names(FOLDER):
            if epoch.isdigit() and int(epoch) in besides:
                continue
            for file in self.storage.names(f"{FOLDER}/{epoch}"):
                name = TransactionName.parse(file.removesuffix(".arrow"))
                if name is not None and name.belongs_to(job, WAL):
                    yield {"transaction": str(name), "segment": f"{FOLDER}/{epoch}/{file}"}

    def missing(self, handle: Handle) -> str | None:
        """What of a segment is not there, seen from here; None when it has its length.

        It is opened, not only looked up: that is when a network file system asks its server. Its checksum is left to
        the publisher, who reads it all anyway.
        """
        path, length = str(handle["segment"]), handle["bytes"]
        try:
            with self.storage.open(path) as file:
                found = file.seek(0, os.SEEK_END)
        except FileNotFoundError:
            return f"{self.storage.where(path)} is not there"
        return None if found == length else f"{self.storage.where(path)} has {found} of its {length} bytes"

    def remove(self, handle: Handle) -> None:
        """Remove one segment; that it is gone already is fine."""
        self.storage.delete(str(handle["segment"]))

    def remove_epoch(self, epoch: int) -> None:
        """Remove all segments of a settled epoch."""
        self.storage.delete(f"{FOLDER}/{epoch}")
