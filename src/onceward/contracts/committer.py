"""Where a plain write-ahead sink remembers what it has sent."""

from __future__ import annotations

from abc import ABC, abstractmethod

from onceward.identity import JobIdentity, SinkName


class CheckpointCommitter(ABC):
    """A record, kept beside the target, of the slots that were sent.

    It runs on the driver and is picklable configuration. Because it is written after the rows and not together with
    them, a crash between the two repeats the slot: a sink that relies on it is at-least-once.
    """

    @abstractmethod
    def open(self, job: JobIdentity, sink: SinkName) -> None:
        """Get ready for this job and sink, making what is needed. Called before every use in a run, repeatable."""

    @abstractmethod
    def is_checkpoint_committed(self, slot: int, checkpoint_id: int) -> bool:
        """Whether `commit_checkpoint` has returned for this slot and epoch in any run."""

    @abstractmethod
    def commit_checkpoint(self, slot: int, checkpoint_id: int) -> None:
        """Remember it durably. Called again after a crash; the second call changes nothing."""

    def forget(self, below: int) -> None:
        """Epochs below are settled and will not be asked for again. May keep them."""
        return None
