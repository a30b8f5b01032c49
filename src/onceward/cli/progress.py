"""What a running job prints: in a terminal one line that stays, in a pipe a line now and then, and what is logged."""

from __future__ import annotations

import time
from types import TracebackType

from rich.live import Live
from rich.text import Text

from onceward.cli.show import err
from onceward.spark.run import Run, RunStatus

_EVERY_S = 10.0


class Progress:
    """Shows a run, and above it whatever onceward logs meanwhile."""

    def __init__(self, *, quiet: bool) -> None:
        # Standard output is the job's own: a StdoutSink writes there.
        live = Live(console=err, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._live = live if err.is_terminal and not quiet else None
        self._is_plain = not err.is_terminal and not quiet
        self._last: tuple[float, int, int] = (time.monotonic(), -1, -1)

    def __enter__(self) -> Progress:
        """Begin."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The line goes; what was printed above it stays."""
        if self._live is not None:
            self._live.stop()

    def show(self, run: Run) -> None:
        """As it stands now."""
        if self._live is not None:
            self._live.update(Text(_line(run.status(), run.rows_per_s()), overflow="ellipsis", no_wrap=True))
            self._live.refresh()
        elif self._is_plain and time.monotonic() - self._last[0] >= _EVERY_S:
            status = run.status()
            if (status.decided, status.settled) != self._last[1:]:
                err.print(_line(status, run.rows_per_s()), markup=False)
            self._last = (time.monotonic(), status.decided, status.settled)


def _line(status: RunStatus, rows_per_s: float) -> str:
    waiting = max(0, status.decided - status.settled)
    line = (
        f"{status.name}: epoch {max(status.planned, 0)}, {rows_per_s:,.0f} rows/s, decided {_upto(status.decided)}, "
        f"published {_upto(status.settled)}" + (f", {waiting} waiting" if waiting else "")
    )
    if status.outage is not None:
        line += f"; {status.outage.sink} does not take it, next try {status.outage.next_try.astimezone():%H:%M:%S}"
    return line


def _upto(epoch: int) -> str:
    return "none" if epoch < 0 else f"up to {epoch}"
