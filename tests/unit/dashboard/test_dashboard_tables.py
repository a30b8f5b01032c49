"""Pages, bars, summaries, standings: pure functions of what was seen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onceward.contracts.events import StagedSlot
from onceward.dashboard.digest import Digest, digest_from, digest_of
from onceward.dashboard.index import HistoryIndex
from onceward.dashboard.places import Place, Places, checkpoints_in
from onceward.dashboard.standing import Seen, standing
from onceward.dashboard.tables import Search, page, recent, runs, timeline
from onceward.dashboard.view import merged
from onceward.history import EpochRecord, HistoryLog, phases
from onceward.identity import RunId
from onceward.restart.history import Begun, Ended, How, Life, Reached, Then
from onceward.testing import MemoryStorage

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def record(epoch: int, *, took: float = 1.0, outcome: str = "settled", run: str = "a", slots: int = 2) -> EpochRecord:
    at = NOON + timedelta(seconds=10 * epoch)
    end = {"settled": "settled", "failed": "failed"}.get(outcome)
    times = {"barrier": at, "begun": at + timedelta(seconds=0.1)}
    if outcome == "settled":
        times |= {"decided": at + timedelta(seconds=took / 2), "delivered": at + timedelta(seconds=took * 0.9)}
    if end is not None:
        times[end] = at + timedelta(seconds=took)
    acked = [at + timedelta(seconds=0.2 + 0.1 * slot) for slot in range(slots)]
    staged = tuple(StagedSlot(slot, 5, 50, "h", acked[slot]) for slot in range(slots))
    return EpochRecord(epoch, RunId(run), outcome, times=times, rows=10, slots=staged, slot_count=slots)


def digests(*records: EpochRecord) -> tuple[Digest, ...]:
    return tuple(digest_of(one) for one in records)


def test_a_digest_of_what_is_stored_is_that_of_the_record() -> None:
    one = record(3, slots=7)
    assert digest_from(one.to_json()) == digest_of(one)
    assert digest_of(one).phases == phases(one)
    assert digest_of(one).delay == pytest.approx(0.4)


def test_the_index_reads_each_file_once_and_survives_compaction_and_damage() -> None:
    storage = MemoryStorage()
    log = HistoryLog(storage)
    for epoch in range(5):
        log.write([record(epoch)])
    storage.create("history/9-9.1.zz.json", b"onceward history 1 garbage")
    index = HistoryIndex(storage)
    assert [row.epoch for row in index.rows()] == [0, 1, 2, 3, 4]
    assert index.is_complete
    log.write([record(epoch) for epoch in range(5)])
    for name in storage.names("history"):
        if not name.startswith("0-4"):
            storage.delete(f"history/{name}")
    assert [row.epoch for row in index.rows()] == [0, 1, 2, 3, 4]
    assert [one.epoch for one in index.attempts(2)] == [2]
    assert index.attempts(2)[0].slots == record(2).slots


def test_one_epoch_is_read_from_its_own_bytes_alone_and_only_if_they_are_the_same() -> None:
    storage = MemoryStorage()
    written = [replace(record(epoch, slots=3), why="größer als 4 €" * epoch) for epoch in range(4)]
    HistoryLog(storage).write(written)
    index = HistoryIndex(storage)
    index.rows()
    (name,) = storage.names("history")
    data = storage.read(f"history/{name}") or b""
    elsewhere = data.replace(b'"epoch":0', b'"epoch":x')
    storage.delete(f"history/{name}")
    storage.create(f"history/{name}", elsewhere)
    assert [index.attempts(epoch) for epoch in (1, 2, 3)] == [[one] for one in written[1:]]
    assert index.attempts(0) == []


def test_the_newest_files_are_read_first_and_the_rest_later() -> None:
    storage = MemoryStorage()
    for epoch in range(4):
        HistoryLog(storage).write([record(epoch)])
    index = HistoryIndex(storage)
    assert [row.epoch for row in index.rows(within_s=-1)] == [3]
    assert not index.is_complete
    for _ in range(3):
        index.rows(within_s=-1)
    assert [row.epoch for row in index.rows(within_s=-1)] == [0, 1, 2, 3]
    assert index.is_complete


def test_a_page_is_the_newest_first_and_search_goes_by_epoch_time_and_outcome() -> None:
    rows = digests(*(record(epoch) for epoch in range(10)), record(10, outcome="failed"))
    found = page(rows, Search(), offset=0, limit=3)
    assert ([row["epoch"] for row in found["epochs"]], found["total"]) == ([10, 9, 8], 11)
    assert [row["epoch"] for row in page(rows, Search(first=2, last=4), offset=1, limit=9)["epochs"]] == [3, 2]
    assert [row["epoch"] for row in page(rows, Search(outcome="failed"), offset=0, limit=9)["epochs"]] == [10]
    since = (NOON + timedelta(seconds=50)).timestamp()
    shown = page(rows, Search(since=since, until=since + 10), offset=0, limit=9)["epochs"]
    assert [row["epoch"] for row in shown] == [6, 5]
    assert page(rows, Search(unusual=True), offset=0, limit=9)["total"] == 1


def test_a_slow_epoch_never_disappears_from_the_timeline() -> None:
    rows = digests(*(record(epoch, took=9.0 if epoch == 777 else 1.0) for epoch in range(5000)))
    found = timeline(rows, None, None, bars=100)
    assert len(found["epoch"]) == 100
    assert 777 in found["epoch"]
    assert max(found["took"]) == 9.0
    assert (found["from"][0], found["to"][-1], found["step"]) == (0, 4999, 50)
    zoomed = timeline(rows, 770, 780, bars=100)
    assert zoomed["epoch"] == list(range(770, 781))


def test_what_failed_attempts_took_is_shown_as_such() -> None:
    rows = digests(record(0), record(1, outcome="failed", took=3.0), record(1, run="b"))
    found = timeline(rows, None, None)
    assert found["failed"] == [0, 3.0]
    assert found["outcome"] == ["settled", "settled"]
    assert {one["run"]: one["failed"] for one in runs(rows)} == {"a": 1, "b": 0}


def test_what_is_in_flight_gives_way_to_what_is_written() -> None:
    written, flying = digests(record(0), record(1)), digests(replace(record(1), outcome="open"), record(2))
    found = merged(written, flying)
    assert [(row.epoch, row.outcome) for row in found] == [(0, "settled"), (1, "settled"), (2, "settled")]


def test_rows_a_second_are_those_of_the_last_minute() -> None:
    rows = digests(*(record(epoch, took=10.0) for epoch in range(100)))
    assert recent(rows)["rows_per_s"] == pytest.approx(1.0, rel=0.2)
    assert recent(())["rows_per_s"] is None


def life(how: How | None, then: Then = Then.RESTART, error: str | None = None) -> Life:
    begun = Begun(3, NOON, "h", 1, Reached(1, 1))
    if how is None:
        return Life(3, begun, None)
    return Life(3, begun, Ended(3, NOON, how, then, 9.0, Reached(2, 2), error=error, message="it said so"))


RUNNING = {"active": True, "stopping": False, "error": None, "outage": None}
OUTAGE = {"sink": "pg", "epoch": 7, "why": "refused", "next_try": "x"}
SEEN = Seen(checkpoint="/c", file="job.py")


@pytest.mark.parametrize(
    ("seen", "kind", "told"),
    [
        (replace(SEEN, status=RUNNING, publishing={"unpublished": 1, "limit": 10}), "running", ""),
        (replace(SEEN, status=RUNNING, publishing={"unpublished": 3, "limit": 10}), "catching-up", "3 decided"),
        (replace(SEEN, status=RUNNING, publishing={"unpublished": 10, "held_back": True}), "held-back", "10 decided"),
        (replace(SEEN, status={**RUNNING, "outage": OUTAGE}), "held-back", "epoch 7"),
        (replace(SEEN, status={**RUNNING, "stopping": True}), "stopping", "asked to stop"),
        (replace(SEEN, status={**RUNNING, "error": "boom"}), "failed", "boom"),
        (replace(SEEN, process=12, no_driver="the driver does not answer"), "silent", "hang"),
        (replace(SEEN, life=life(None), watched=True), "restarting", "does not answer yet"),
        (replace(SEEN, life=life(How.FAILED), watched=True), "restarting", "it said so"),
        (replace(SEEN, life=life(How.FAILED), watched=False), "failed", "it said so"),
        (replace(SEEN, life=life(How.KILLED, Then.GAVE_UP)), "failed", "gave up"),
        (replace(SEEN, life=life(How.STOPPED, Then.END)), "stopped", "stopped"),
        (replace(SEEN, life=life(How.REFUSED, Then.END, "RowsRejected")), "refused", "it said so"),
        (replace(SEEN, left_behind=True, no_driver="process 9 is gone"), "failed", "killed"),
        (replace(SEEN, moved_s=3.0), "seen", "--api"),
        (replace(SEEN, moved_s=3000.0, waiting=2), "stopped", "2 decided epochs wait"),
    ],
)
def test_how_a_job_stands(seen: Seen, kind: str, told: str) -> None:
    found = standing(seen)
    assert found.kind == kind
    assert told in found.why


def test_a_refusal_names_the_command_that_mends_it() -> None:
    refused = replace(SEEN, life=life(How.REFUSED, Then.END, "RowsRejected"))
    assert standing(refused).command == "onceward poison show job.py"
    damaged = replace(SEEN, life=life(How.REFUSED, Then.END, "DamagedFile"))
    assert standing(damaged).command == "onceward checkpoints verify /c"


def test_every_command_that_is_named_exists() -> None:
    from onceward import errors
    from onceward.cli.main import COMMANDS
    from onceward.dashboard.standing import _FIXES

    for error, command in _FIXES.items():
        assert command.split()[1] in COMMANDS, command
        assert hasattr(errors, error), error


def test_a_folder_shows_the_checkpoints_in_it_and_new_ones_appear(tmp_path: Path) -> None:
    def make(name: str) -> Path:
        path = tmp_path / name
        (path / "onceward").mkdir(parents=True)
        (path / "onceward" / "identity.json").touch()
        return path

    one, deep, hidden = make("one"), make("team/two"), make(".old/three")
    inside = make("one/state/four")
    assert checkpoints_in(tmp_path) == [one, deep]
    places = Places([Place(one)], [tmp_path])
    assert [place.checkpoint for place in places.all()] == [one, deep]
    assert places.get(Place(deep).id) == Place(deep)
    assert places.get(Place(hidden).id) is None
    assert places.get(Place(inside).id) is None
