"""The read model: what `onceward status` (and every other view) shows of a checkpoint, without touching it."""

from onceward.observe.state import EpochState, OperatorState, read_state
from onceward.observe.status import (
    CheckpointStatus,
    DriverStatus,
    EpochStatus,
    SinkStatus,
    read_status,
    with_driver,
    with_in_doubt,
)

__all__ = [
    "CheckpointStatus",
    "DriverStatus",
    "EpochState",
    "EpochStatus",
    "OperatorState",
    "SinkStatus",
    "read_state",
    "read_status",
    "with_driver",
    "with_in_doubt",
]
