"""What an error of a target means for the epoch that is being published. Each sink has a table of its own."""

from __future__ import annotations

from enum import Enum


class ErrorClass(Enum):
    """Every error is one of these. A sink's table is in its page under docs/targets, and a test compares the two."""

    RETRY = "try again"
    """Busy, away, restarting, a lock: no row is to blame, and it passes. Raised as `TryAgain`."""
    ROW = "this row is at fault"
    """The same row will be refused again. Raised as `RowsRejected`; bisection finds it."""
    TARGET = "stop: the target is not as it was"
    """Table, column, privilege or topic are gone. Raised as `TargetChanged`."""
    UNKNOWN = "unknown: found out by bisection"
    """In no table. Raised as it is: it is tried again, and after a few times the rows are looked through."""
