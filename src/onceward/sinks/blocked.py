"""What is said of a wait, or a statement, that a server cut off because it took too long: no row is to blame."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.errors import TargetUnavailable

_SHOWN = 3


def staging_cut_off(why: str, *, is_locked: bool, epoch: int, sink: str) -> TargetUnavailable:
    """What a task fails with: `is_locked` where others were in the way, else a statement took too long."""
    hint = "raise timeout_s if the server is that slow; nothing is lost, the epoch is computed again"
    if is_locked:
        hint = (
            "let the others finish, or end them; nothing is lost, the epoch is computed again. If the table got a "
            "unique index, foreign key or trigger while the job ran: start again, and its rows go through the "
            "write-ahead log"
        )
    return TargetUnavailable(why, epoch=epoch, sink=sink, hint=hint)


def start_cut_off(why: str, *, sink: str) -> TargetUnavailable:
    """What a start fails with."""
    return TargetUnavailable(why, sink=sink, hint="let others finish, then start again")


def first_few(found: Sequence[str], *, separator: str = ", ") -> str:
    """As many as a person reads, and how many more there are."""
    more = [f"{len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return separator.join([*found[:_SHOWN], *more])
