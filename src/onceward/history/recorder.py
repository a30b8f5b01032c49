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
_SHUTDOWN_GRACE_S: Final = 5.0
_HOUSEKEEPING: Final = 64


class Recorder:
    """A listener. What it was told before `begin` (of a recovery) is kept; a start that is refused writes nothing.

    A driver that is killed loses what it has not written: at most the last second, and epochs in flight. `then` is
    called with every record that is finished, in the recorder's own thread, whether it is written or not.
    """

    def __init__(
        self,
        history: HistoryLog,
        clock: Clock,
        *,
        keep: Retention,
        every_s: float = _EVERY_S,
        then: tuple[Callable[[EpochRecord], None], ...] = (),
    ) -> None:
        self.history = history
        self._clock, self._keep, self._every_s, self._then = clock, keep, every_s, then
        self._writes = keep.keeps_any
        self._changed = threading.Condition()
        # Held while events become records, so that whoever asks sees an event either as one or as the other. Those who
        # tell never wait for it.
        self._folding = threading.Lock()
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
        self._thread.start()

    def ask(self, reports: Callable[[], Iterable[EngineReported]]) -> None:
        """Where to hear what the engine says of the epochs that have ended since the last question."""
        self._reports = reports

    def in_flight(self) -> list[EpochRecord]:
        """What is not written yet, from any thread: epochs that are open now, and those that have just ended."""
        with self._folding:
            with self._changed:
                told = list(self._told)
            found, ended = dict(self._open), [record for record, _ in self._ended]
        ended += _fold(found, told, self._run)
        return sorted([*ended, *found.values()], key=lambda record: record.epoch)

    def close(self) -> None:
        """Write the rest. A disk that hangs is not waited for."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(_SHUTDOWN_GRACE_S)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._told or self._closing or self._ended):
                    self._changed.wait()
                # So that many short epochs make one file.
                self._changed.wait_for(lambda: self._closing, self._every_s)
                closing = self._closing
            try:
                self._note()
                self._finish(self._finished(everything=closing))
            except Exception:
                # Deliveries do not depend on it.
                log.warning("the history of this run is not written any further", exc_info=True)
                self._writes, self._reports = False, tuple
            if closing:
                return

    def _note(self) -> None:
        with self._folding:
            with self._changed:
                told, self._told = self._told, []
            now = self._clock.monotonic()
            self._ended += [(record, now) for record in _fold(self._open, told, self._run)]
        if self._ended:
            # Asks the engine, so nobody is kept waiting meanwhile.
            reports = {report.epoch: report for report in self._reports()}
            with self._folding:
                self._ended = [(_with_report(record, reports), since) for record, since in self._ended]
                self._open = {epoch: _with_report(record, reports) for epoch, record in self._open.items()}

    def _finished(self, *, everything: bool) -> list[EpochRecord]:
        """Those that Spark has reported, or will not any more; at the end also those that are still open."""
        now = self._clock.monotonic()
        found = [record for record, since in self._ended if everything or not _awaits_report(record, since, now)]
        return [*found, *self._open.values()] if everything else found

    def _finish(self, records: list[EpochRecord]) -> None:
        """Write first, then forget: whoever asks may find a record twice, but always finds it."""
        try:
            self._tell(records)
            self._write(records)
        finally:
            gone = {id(record) for record in records}
            with self._folding:
                self._ended = [one for one in self._ended if id(one[0]) not in gone]

    def _tell(self, records: list[EpochRecord]) -> None:
        for record in records:
            for tell in self._then:
                try:
                    tell(record)
                except Exception:
                    text = "a listener failed over the record of epoch %d"
                    log.warning(text, record.epoch, exc_info=True, extra={"epoch": record.epoch})

    def _write(self, records: list[EpochRecord]) -> None:
        if not (records and self._writes):
            return
        self.history.write(sorted(records, key=lambda record: record.epoch))
        self._written += 1
        if self._written % _HOUSEKEEPING == 1:
            self.history.compact()
            self.history.prune(self._keep, self._clock.now())


def _fold(records: dict[int, EpochRecord], told: Iterable[Event], run: RunId) -> list[EpochRecord]:
    """Put the events into the open records; those that have ended by it are taken out and returned."""
    ended = []
    for event in told:
        record = folded(records.pop(event.epoch, EpochRecord(event.epoch, run)), event)
        if record.outcome == "open":
            records[event.epoch] = record
        else:
            ended.append(record)
    return ended


def _with_report(record: EpochRecord, reports: Mapping[int, EngineReported]) -> EpochRecord:
    report = reports.get(record.epoch)
    return record if report is None or record.outcome == "failed" else folded(record, report)


def _awaits_report(record: EpochRecord, since: float, now: float) -> bool:
    is_told_of = record.engine_ms or record.outcome == "failed" or "begun" not in record.times
    return not is_told_of and now - since <= _REPORT_WITHIN_S
