"""*Publish*: a delivery that fails again and again, by an error that its sink does not know. Is a row to blame?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceward.contracts import RejectedRow, TryAgain
from onceward.epoch.run_context import log
from onceward.errors import RowsRejected

FIRST_SEARCH = 3
"""After so many failures the rows are looked through, and again after each doubling."""


class RejectedRowSearch:
    """Of one delivery. `search` asks the sink which rows its target does not take."""

    def __init__(self, search: Callable[[], Sequence[RejectedRow]], *, epoch: int, sink: str) -> None:
        self._search, self._epoch, self._sink = search, epoch, sink
        self._failures, self._next_search = 0, FIRST_SEARCH

    def after_failure(self, error: Exception | None) -> None:
        """Count a failure; now and then look through the rows, and raise `RowsRejected` when some are at fault."""
        if error is None or isinstance(error, TryAgain):
            return
        self._failures += 1
        if self._failures < self._next_search:
            return
        self._next_search *= 2
        try:
            found = self._search()
        except Exception as failure:
            log.warning("epoch %d, sink %r: no row can be blamed: %s", self._epoch, self._sink, failure)
            return
        if found:
            first = found[0]
            raise RowsRejected(
                f"the target does not take {len(found)} of the rows; row {first.row} of slot {first.slot}: {first.why}",
                epoch=self._epoch,
                sink=self._sink,
                hint=RowsRejected.hint_for("the target"),
            ) from error
