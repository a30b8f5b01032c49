"""What came of a commit: a closed set of answers, matched exhaustively. Unknown is never success."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Committed:
    """It is visible now, and the target holds its receipt."""


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """It was visible before; the receipt in the target proves it."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Not now (locked, overloaded, restarting). Nothing changed; ask again after `after_s`."""

    why: str
    after_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Lost:
    """What was staged is gone and there is no receipt: the target has neither. The job stops and says so."""

    why: str


class TryAgain(Exception):
    """Raised by `send_transaction` or `send_values`: the target is busy or away, and no row is to blame.

    Any other exception is tried again too, but after a few times the rows are looked through for one at fault.
    """


Outcome = Committed | AlreadyCommitted | RetryLater | Lost
