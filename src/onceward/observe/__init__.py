"""The read model: what `onceward status` (and every other view) shows of a checkpoint, without touching it."""

from onceward.observe.status import CheckpointStatus, EpochStatus, SinkStatus, read_status, with_in_doubt

__all__ = ["CheckpointStatus", "EpochStatus", "SinkStatus", "read_status", "with_in_doubt"]
