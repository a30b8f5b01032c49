"""The values that travel between the driver, the executors and the targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, RunId, SinkName, TransactionName

if TYPE_CHECKING:
    import pyarrow as pa

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

Handle: TypeAlias = Mapping[str, Json]
"""A JSON object naming what a slot staged. It must be enough to commit or abort from another process."""


@dataclass(frozen=True, slots=True)
class SlotContext:
    """One task attempt's share of an epoch in one sink."""

    job: JobIdentity
    sink: SinkName
    epoch: int
    takeover: int
    slot: int
    attempt: int
    run: RunId
    timestamp: datetime
    fingerprint: Fingerprint

    @property
    def transaction(self) -> TransactionName:
        """The name under which the target must know what this attempt stages; printable with `str`."""
        return TransactionName.of(
            self.job,
            self.sink,
            epoch=self.epoch,
            takeover=self.takeover,
            slot=self.slot,
            attempt=self.attempt,
            run=self.run,
        )


@dataclass(frozen=True, slots=True)
class Receipt:
    """The target's own proof that a slot of an epoch is in. Its key is (job, generation, sink, epoch, slot).

    Not `is_whole`: only a part of it is. That proves no more than that its epoch was decided.
    """

    job: JobName
    generation: Generation
    sink: SinkName
    epoch: int
    slot: int
    fingerprint: Fingerprint
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that the target does not take: the slot, its number in the slot, and what the target says of it."""

    slot: int
    row: int
    why: str


@dataclass(frozen=True, slots=True)
class SlotValues:
    """One slot of a write-ahead epoch on its way to the target.

    `receipt` is None when the job's guarantee needs no proof (at-least-once, at-most-once). `read` opens the slot's
    segment anew on each call and yields its batches; it raises `DamagedFile` rather than yield a doubtful row.
    """

    slot: int
    rows: int
    receipt: Receipt | None
    read: Callable[[], Iterator[pa.RecordBatch]]
