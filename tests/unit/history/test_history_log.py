"""The history on disk: a few records a file, put together, pruned, and read however many there are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onceward.contracts.events import StagedSlot
from onceward.history import EpochRecord, HistoryLog, SinkRecord, phases, summary
from onceward.history.log import FOLDER, SMALL_FILES, TOGETHER
from onceward.identity import RunId, SinkName
from onceward.journal import Retention
from onceward.storage import LocalStorage
from onceward.testing import MemoryStorage

START = datetime(2026, 1, 1, tzinfo=UTC)


def record(epoch: int, *, run: str = "run") -> EpochRecord:
    at = START + timedelta(minutes=epoch)
    return EpochRecord(epoch, RunId(run), "settled", times={"begun": at, "settled": at}, rows=epoch)


def epochs(records: list[EpochRecord]) -> list[int]:
    return [one.epoch for one in records]


def test_what_was_written_is_read_in_the_order_of_epochs() -> None:
    history = HistoryLog(MemoryStorage())
    history.write([record(2), record(3)])
    history.write([record(0), record(1)])
    history.write([])
    assert history.read() == [record(0), record(1), record(2), record(3)]
    assert epochs(history.read(first=1, last=2)) == [1, 2]
    assert epochs(history.newest(3)) == [1, 2, 3]


def test_an_outline_tells_the_same_over_all_epochs_as_the_whole_records() -> None:
    history = HistoryLog(MemoryStorage())
    # Acknowledged out of turn, some never, one on a whole second (which is written in fewer letters).
    waits = ([3.0, 1.5, 2.0, None], [0.25, 0.25], [None], [])
    for epoch, acked in enumerate(waits):
        at = [None if wait is None else START + timedelta(seconds=wait) for wait in acked]
        slots = tuple(StagedSlot(n, 10, 100, "", one) for n, one in enumerate(at))
        sinks = {SinkName("table"): SinkRecord(rows=10, retries=epoch)}
        history.write([replace(record(epoch), slots=slots, slot_count=len(slots), sinks=sinks)])
    whole, outline = history.read(), history.outline()
    assert summary(outline) == summary(whole)
    assert [phases(one) for one in outline] == [phases(one) for one in whole]
    assert [phases(one).get("alignment") for one in outline] == [1.5, 0.0, None, None]
    assert [len(one.slots) for one in whole] == [4, 2, 1, 0]


def test_two_attempts_at_an_epoch_are_both_there() -> None:
    history = HistoryLog(MemoryStorage())
    history.write([record(0)])
    history.write([record(0, run="other"), record(1, run="other")])
    assert [(one.epoch, one.run) for one in history.newest(2)] == [(0, "run"), (0, "other"), (1, "other")]


def test_many_small_files_become_few_and_nothing_is_lost() -> None:
    storage = MemoryStorage()
    history = HistoryLog(storage)
    wanted = 3 * TOGETHER
    for epoch in range(wanted):
        history.write([record(epoch)])
        history.compact()
    assert epochs(history.read()) == list(range(wanted))
    assert len(storage.names(FOLDER)) <= SMALL_FILES + wanted // TOGETHER + 1


def test_a_driver_that_dies_while_it_puts_files_together_leaves_no_record_twice() -> None:
    storage = MemoryStorage()
    history = HistoryLog(storage)
    for epoch in range(SMALL_FILES + 2):
        history.write([record(epoch)])

    class Dies(MemoryStorage):
        def delete(self, path: str) -> None:
            raise KeyboardInterrupt

    dying = Dies()
    for name in storage.names(FOLDER):
        dying.create(f"{FOLDER}/{name}", storage.read(f"{FOLDER}/{name}") or b"")
    with pytest.raises(KeyboardInterrupt):
        HistoryLog(dying).compact()
    assert len(dying.names(FOLDER)) > len(storage.names(FOLDER))
    assert epochs(HistoryLog(dying).read()) == list(range(SMALL_FILES + 2))


def test_a_damaged_file_is_a_gap_and_no_error(tmp_path: Path) -> None:
    history = HistoryLog(LocalStorage(tmp_path))
    for epoch in range(3):
        history.write([record(epoch)])
    (middle,) = (path for path in (tmp_path / FOLDER).iterdir() if path.name.startswith("1-"))
    middle.write_bytes(middle.read_bytes()[:-3])
    (tmp_path / FOLDER / "something else").write_text("?")
    assert epochs(history.read()) == [0, 2]


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (Retention(epochs=4), [6, 7, 8, 9]),
        (Retention(epochs=5), [4, 5, 6, 7, 8, 9]),
        (Retention(epochs=None, seconds=150), [6, 7, 8, 9]),
        (Retention(epochs=100), list(range(10))),
        (Retention(epochs=0), []),
    ],
)
def test_old_files_go_once_all_of_them_is_old(keep: Retention, left: list[int]) -> None:
    history = HistoryLog(MemoryStorage())
    for epoch in range(0, 10, 2):
        history.write([record(epoch), record(epoch + 1)])
    history.prune(keep, START + timedelta(minutes=9))
    assert epochs(history.read()) == left


def test_the_newest_below_an_epoch_are_a_page() -> None:
    history = HistoryLog(MemoryStorage())
    for first in range(0, 12, 3):
        history.write([record(epoch) for epoch in range(first, first + 3)])
    assert epochs(history.newest(2, below=8)) == [6, 7]
    assert epochs(history.newest(4, below=5)) == [1, 2, 3, 4]
    assert epochs(history.newest(9, below=2)) == [0, 1]
    assert epochs(history.newest(9, below=0)) == []
