"""Listens to a run, and writes its history down beside it: a thread of its own, so that no epoch waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from onceward.contracts import Clock
from onceward.contracts.events import EngineReported, Event
from onceward.history.log import HistoryLog
from onceward.history.record import EpochRecord, folded
from onceward.identity import RunId
from onceward.journal import Retention

log = logging.getLogger("onceward")

_EVERY_S: Final = 1.0
_REPORT_WITHIN_S: Final = 5.0
"""What Spark has to say of an epoch comes after its decision; a record is not held back for longer than this."""
_LAST_WORDS_S: Final = 5.0
_HOUSEKEEPING: Final = 64


class Recorder:
    """A listener. What it was told before `begin` (of a recovery) is kept; a start that is refused writes nothing.

    A driver that is killed loses what it has not written: at most the last second, and epochs in flight.
    """

    def __init__(self, history: HistoryLog, clock: Clock, *, keep: Retention, every_s: float = _EVERY_S) -> None:
        self._history, self._clock, self._keep, self._every_s = history, clock, keep, every_s
        self._changed = threading.Condition()
        self._told: list[Event] = []
        self._closing = False
        self._open: dict[int, EpochRecord] = {}
        self._ended: list[tuple[EpochRecord, float]] = []
        self._run = RunId("")
        self._reports: Callable[[], Iterable[EngineReported]] = tuple
        self._written = 0
        self._thread = threading.Thread(target=self._work, name="onceward-history", daemon=True)

    def __call__(self, event: Event) -> None:
        """Take note; nothing else happens in the caller's thread."""
        with self._changed:
            self._told.append(event)
            self._changed.notify_all()

    def begin(self, run: RunId) -> None:
        """From here on what is told is written down."""
        self._run = run
        if self._keep.keeps_any:
            self._thread.start()

    def ask(self, reports: Callable[[], Iterable[EngineReported]]) -> None:
        """Where to hear what the engine says of the epochs that have ended since the last question."""
        self._reports = reports

    def close(self) -> None:
        """Write the rest. A disk that hangs is not waited for."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(_LAST_WORDS_S)

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    while not (self._told or self._closing or self._ended):
                        self._changed.wait()
                    # So that many short epochs make one file.
                    self._changed.wait_for(lambda: self._closing, self._every_s)
                    told, self._told, closing = self._told, [], self._closing
                self._note(told)
                self._write(self._finished(everything=closing))
                if closing:
                    return
        except Exception:
            # Deliveries do not depend on it.
            log.warning("the history of this run is not written any further", exc_info=True)

    def _note(self, told: Iterable[Event]) -> None:
        for event in told:
            known = self._open.pop(event.epoch, EpochRecord(event.epoch, self._run))
            record = folded(known, event)
            if record.outcome == "open":
                self._open[event.epoch] = record
            else:
                self._ended.append((record, self._clock.monotonic()))
        if self._ended:
            reports = {report.epoch: report for report in self._reports()}
            self._ended = [(_with_report(record, reports), since) for record, since in self._ended]
            self._open = {epoch: _with_report(record, reports) for epoch, record in self._open.items()}

    def _finished(self, *, everything: bool) -> list[EpochRecord]:
        """Those that Spark has reported, or will not any more; at the end also those that are still open."""
        now = self._clock.monotonic()
        waiting = [] if everything else [one for one in self._ended if _awaits_report(*one, now)]
        found = [one[0] for one in self._ended if one not in waiting]
        self._ended = waiting
        return [*found, *self._open.values()] if everything else found

    def _write(self, records: list[EpochRecord]) -> None:
        if not records:
            return
        self._history.write(sorted(records, key=lambda record: record.epoch))
        self._written += 1
        if self._written % _HOUSEKEEPING == 1:
            self._history.compact()
            self._history.prune(self._keep, self._clock.now())


def _with_report(record: EpochRecord, reports: Mapping[int, EngineReported]) -> EpochRecord:
    report = reports.get(record.epoch)
    return record if report is None or record.outcome == "failed" else folded(record, report)


def _awaits_report(record: EpochRecord, since: float, now: float) -> bool:
    is_told_of = record.engine_ms or record.outcome == "failed" or "begun" not in record.times
    return not is_told_of and now - since <= _REPORT_WITHIN_S
