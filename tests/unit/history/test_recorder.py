"""The recorder beside a run: what is on disk, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from onceward.clock import SystemClock
from onceward.contracts.events import Begun, EngineReported, Event, Failed, Settled
from onceward.history import HistoryLog, Recorder
from onceward.identity import RunId
from onceward.journal import Retention
from onceward.testing import MemoryStorage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEEP = Retention(epochs=100)


def begun(epoch: int) -> Event:
    return Begun(epoch, NOW, NOW, 0, "exactly-once")


def settled(epoch: int) -> Event:
    return Settled(epoch, NOW, {})


def recorder(storage: MemoryStorage, *, keep: Retention = KEEP, every_s: float = 0.01) -> Recorder:
    return Recorder(HistoryLog(storage), SystemClock(), keep=keep, every_s=every_s)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it did not come to be"
        threading.Event().wait(0.005)


def test_a_settled_epoch_is_written_with_what_spark_says_of_it() -> None:
    storage = MemoryStorage()
    recording = recorder(storage)
    recording.begin(RunId("run"))
    recording.ask(lambda: [EngineReported(0, NOW, {"walCommit": 60})])
    recording(begun(0))
    recording(settled(0))
    until(lambda: bool(HistoryLog(storage).read()))
    (record,) = HistoryLog(storage).read()
    assert (record.outcome, record.run, record.engine_ms) == ("settled", "run", {"walCommit": 60})
    recording.close()


def test_the_end_of_a_run_writes_the_rest() -> None:
    storage = MemoryStorage()
    recording = recorder(storage, every_s=60)
    recording.begin(RunId("run"))
    for epoch in range(3):
        recording(begun(epoch))
    recording(settled(0))
    recording(Failed(1, NOW, "E", "no"))
    recording.close()
    assert [(one.epoch, one.outcome) for one in HistoryLog(storage).read()] == [
        (0, "settled"),
        (1, "failed"),
        (2, "open"),
    ]


def test_two_attempts_at_one_epoch_in_one_second_are_two_records() -> None:
    storage = MemoryStorage()
    recording = recorder(storage, every_s=60)
    recording.begin(RunId("run"))
    later = NOW.replace(hour=1)
    for event in (begun(0), Failed(0, NOW, "E", "no"), Begun(0, later, NOW, 1, "exactly-once"), settled(0)):
        recording(event)
    recording.close()
    assert [one.outcome for one in HistoryLog(storage).read()] == ["failed", "settled"]


def test_a_start_that_is_refused_writes_nothing() -> None:
    storage = MemoryStorage()
    recording = recorder(storage)
    recording(settled(0))
    recording.close()
    assert not storage.names("history")


def test_who_keeps_none_has_none() -> None:
    storage = MemoryStorage()
    recording = recorder(storage, keep=Retention(epochs=0))
    recording.begin(RunId("run"))
    recording(settled(0))
    recording.close()
    assert not storage.names("history")


def test_a_storage_that_fails_ends_the_history_and_not_the_job() -> None:
    class Full(MemoryStorage):
        def create(self, path: str, data: bytes) -> bool:
            raise OSError("no space left")

    recording = recorder(Full())
    recording.begin(RunId("run"))
    recording(settled(0))
    recording.close()
    recording(settled(1))


def test_what_is_in_flight_can_be_asked_for_before_it_is_written() -> None:
    storage = MemoryStorage()
    recording = recorder(storage, every_s=60)
    recording.begin(RunId("run"))
    recording(begun(0))
    recording(settled(0))
    recording(begun(1))
    assert not storage.names("history")
    assert [(one.epoch, one.outcome) for one in recording.in_flight()] == [(0, "settled"), (1, "open")]
    recording.close()


def test_a_record_can_always_be_found_in_flight_or_on_disk() -> None:
    """Asked at the very moment at which it is written: it is forgotten only afterwards."""

    class Asked(MemoryStorage):
        found: list[list[int]]

        def create(self, path: str, data: bytes) -> bool:
            self.found.append([one.epoch for one in recording.in_flight()])
            return super().create(path, data)

    storage = Asked()
    storage.found = []
    recording = recorder(storage)
    recording.begin(RunId("run"))
    recording(settled(0))
    until(lambda: bool(storage.names("history")))
    assert storage.found == [[0]]
    until(lambda: not recording.in_flight())
    recording.close()


def test_whoever_wants_each_finished_record_gets_it_also_where_none_is_kept() -> None:
    storage, finished = MemoryStorage(), []
    recording = Recorder(
        HistoryLog(storage), SystemClock(), keep=Retention(epochs=0), every_s=0.01, then=(finished.append,)
    )
    recording.begin(RunId("run"))
    recording(settled(0))
    recording(settled(1))
    recording.close()
    assert [one.epoch for one in finished] == [0, 1]
    assert not storage.names("history")
    assert not [one for one in recording.in_flight() if one.outcome == "open"]


def test_whoever_fails_over_a_record_disturbs_nobody() -> None:
    def fail(record: object) -> None:
        raise RuntimeError("no")

    storage = MemoryStorage()
    recording = Recorder(HistoryLog(storage), SystemClock(), keep=KEEP, every_s=0.01, then=(fail,))
    recording.begin(RunId("run"))
    recording(settled(0))
    until(lambda: bool(storage.names("history")))
    recording(settled(1))
    recording.close()
    assert [one.epoch for one in HistoryLog(storage).read()] == [0, 1]
