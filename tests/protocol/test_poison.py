"""Scenario 55: a row that the target rejects stops its epoch and every later one, is named, and can be diverted."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sink_cases import table_rows

from onceward.admin import divert_poison, find_poison
from onceward.errors import ConfigurationError, RowsRejected
from onceward.recovery import look_at
from onceward.sinks import SQLiteSink
from onceward.storage import LocalStorage
from onceward.testing import Behaviour, DirectoryLogs, Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA

BAD = (5, 14)


@pytest.fixture
def harness(workshop: Path) -> Harness:
    """Twelve rows in epoch 0, eight in epoch 1; the table refuses one row in the first slot of each."""
    sink = SQLiteSink(workshop / "rows.db", table="rows")
    sink.check(SCHEMA, output_mode="append")
    with closing(sqlite3.connect(workshop / "rows.db")) as database, database:
        bad = " OR ".join(f"NEW.id = {number}" for number in BAD)
        database.execute(
            f"CREATE TRIGGER refuse BEFORE INSERT ON rows WHEN {bad} BEGIN SELECT RAISE(ABORT, 'unlucky id'); END"
        )
    sink.check(SCHEMA, output_mode="append")
    return Harness(
        SinkUnderTest(sink, lambda: table_rows(workshop / "rows.db", "rows")),
        source=Source(ends=(12, 20), keys=3),
        storage=LocalStorage(workshop / "checkpoint" / "onceward"),
        logs=DirectoryLogs(workshop / "checkpoint"),
        rows_in_a_batch=4,
    )


def context_of(harness: Harness):
    return look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )[0]


def ids(harness: Harness) -> list[int]:
    return sorted(int(str(row["id"])) for row in harness.subjects[0].read())


def test_a_rejected_row_stops_the_epoch_at_once_and_is_named(harness: Harness) -> None:
    ending = harness.life(behaviour=Behaviour(publishes=lambda epoch: epoch > 0))
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, RowsRejected)
    assert (ending.error.epoch, "unlucky id" in str(ending.error)) == (0, True)
    assert ids(harness) == []
    (row,) = find_poison(context_of(harness))
    assert (row.epoch, row.values["id"], row.why) == (0, 5, "unlucky id")
    assert ids(harness) == [], "looking changes nothing"


def test_after_it_is_diverted_everything_else_arrives_once_and_in_order(harness: Harness, workshop: Path) -> None:
    harness.life()
    for epoch, bad in enumerate(BAD):
        (path,) = divert_poison(context_of(harness), workshop / "rejected")
        (line,) = path.read_text().splitlines()
        kept = json.loads(line)
        assert (kept["epoch"], kept["values"]["id"]) == (epoch, bad)
        ending = harness.life()
    assert isinstance(ending, Finished)
    assert ids(harness) == [number for number in range(20) if number not in BAD]
    epochs = [row["epoch"] for row in harness.subjects[0].read()]
    assert epochs == sorted(epochs)


def test_without_a_diversion_every_start_stops_at_the_same_row_and_nothing_is_lost(
    harness: Harness, workshop: Path
) -> None:
    for _ in range(3):
        ending = harness.life()
        assert isinstance(ending, Failed)
        assert isinstance(ending.error, RowsRejected)
    with closing(sqlite3.connect(workshop / "rows.db")) as database, database:
        database.execute("DROP TRIGGER refuse")
    # As every start does.
    harness.sinks[0].check(SCHEMA, output_mode="append")
    harness.drain()
    assert ids(harness) == list(range(20))


def test_there_is_nothing_to_divert_where_nothing_is_rejected(harness: Harness, workshop: Path) -> None:
    with closing(sqlite3.connect(workshop / "rows.db")) as database, database:
        database.execute("DROP TRIGGER refuse")
    # As every start does.
    harness.sinks[0].check(SCHEMA, output_mode="append")
    harness.drain()
    with pytest.raises(ConfigurationError, match="no row"):
        divert_poison(context_of(harness), workshop / "rejected")
    assert not (workshop / "rejected").exists()


def test_a_crash_between_the_file_and_the_record_is_mended_by_doing_it_again(
    harness: Harness, workshop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> bool:
        raise KeyboardInterrupt

    harness.life()
    with monkeypatch.context() as patch:
        patch.setattr("onceward.journal.Diversions.create", die)
        with pytest.raises(KeyboardInterrupt):
            divert_poison(context_of(harness), workshop / "rejected")
    assert isinstance(harness.life(), Failed), "without the record nothing is left out"
    (path,) = divert_poison(context_of(harness), workshop / "rejected")
    assert len(path.read_text().splitlines()) == 1
