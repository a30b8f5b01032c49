"""From an epoch that is decided and cannot be published, through what a person says, to a job that runs on."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sink_cases import table_rows
from town import DECIDED, A, B, Town, one_of_two_lost, refused, say

from onceward.admin import divert_poison, propose_accept_loss, propose_epoch_is_published, propose_slot_is_in
from onceward.errors import EpochLost, Fenced, OutputLost, RowsRejected, SinkMissing, StagedRowsMissing
from onceward.sinks import SQLiteSink
from onceward.spark.rewind import rewind
from onceward.storage import LocalStorage
from onceward.testing import (
    Behaviour,
    DiesAt,
    DirectoryLogs,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Harness,
    PausedAt,
    SecondHost,
    SinkUnderTest,
    Source,
)
from onceward.testing.engine import SCHEMA


def walk_output_lost_then_each_slot_is_brought_in_by_hand() -> None:
    town = one_of_two_lost()
    refused(town.harness, OutputLost, "slot-is-in FILE --epoch 1 --sink 'a'")
    manifest = town.context().register.manifest(1, 0)
    assert manifest is not None
    by_hand = [dict(row) for row in town.targets[B].rows if row["epoch"] == 1]
    town.targets[A].rows.extend(by_hand)
    for slot in manifest.sinks[A].slots:
        refused(town.harness, OutputLost)
        proposal = propose_slot_is_in(town.context(), epoch=1, sink=A, slot=slot.slot)
        say(town.harness, proposal, f"its {slot.rows} rows count as being in the target", "no receipt")
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_output_lost_then_the_epoch_is_published_in_one_sink() -> None:
    town = one_of_two_lost()
    refused(town.harness, OutputLost, "epoch-is-published FILE 1")
    town.targets[A].rows.extend(dict(row) for row in town.targets[B].rows if row["epoch"] == 1)
    say(town.harness, propose_epoch_is_published(town.context(), epoch=1, sink=A), "sink 'b' gets its share as before")
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_output_lost_then_accepted() -> None:
    town = one_of_two_lost()
    refused(town.harness, OutputLost, "accept-loss FILE 1")
    proposal = propose_accept_loss(town.context(), epoch=1, sink=A)
    say(town.harness, proposal, "4 rows of epoch 1 in 2 slots in sink 'a' are given up")
    town.drained()
    assert town.ids(A) == [*range(4), *range(8, 12)], "the four that were given up"
    assert town.ids(B) == list(range(12))


def walk_output_lost_then_rewind(tmp_path: Path) -> None:
    town = Town()
    job = town.job(A, storage=LocalStorage(tmp_path / "onceward"), logs=DirectoryLogs(tmp_path))
    job.life(until=0)
    job.life(DiesAt(DECIDED, after=True))
    town.lose_transactions(A)
    refused(job, OutputLost, "onceward rewind CHECKPOINT 1")
    rewind(tmp_path, 1)
    town.drained(job)
    assert town.ids(A) == list(range(12))


def manifest_gone(town: Town) -> None:
    town.decided_and_unpublished()
    for path in [path for path in town.storage.files if path.startswith("manifests/1.")]:
        del town.storage.files[path]


def walk_epoch_lost_then_rewind(tmp_path: Path) -> None:
    town = Town()
    job = town.job(storage=LocalStorage(tmp_path / "onceward"), logs=DirectoryLogs(tmp_path))
    job.life(until=0)
    job.life(DiesAt(DECIDED, after=True))
    (tmp_path / "onceward" / "manifests" / "1.0.json").unlink()
    refused(job, EpochLost, "onceward rewind CHECKPOINT 1")
    rewind(tmp_path, 1)
    town.drained(job)
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_epoch_lost_then_accepted() -> None:
    town = Town()
    manifest_gone(town)
    refused(town.harness, EpochLost, "accept-loss FILE 1")
    say(town.harness, propose_accept_loss(town.context(), epoch=1), "whatever it was in every sink, it is given up")
    town.drained()
    assert town.ids(A) == town.ids(B) == [*range(4), *range(8, 12)]


def walk_epoch_lost_then_said_of_each_sink() -> None:
    """One of them was filled by hand, the other is given up. Half of it said is not enough."""
    town = Town()
    manifest_gone(town)
    refused(town.harness, EpochLost, "epoch-is-published FILE 1")
    town.targets[A].rows.extend({"id": i, "key": i % 3, "epoch": 1} for i in range(4, 8))
    proposal = propose_epoch_is_published(town.context(), epoch=1, sink=A)
    say(town.harness, proposal, "no receipt of epoch 1 was found in sink 'a'", "say something of it too")
    refused(town.harness, EpochLost)
    say(town.harness, propose_accept_loss(town.context(), epoch=1, sink=B))
    town.drained()
    assert town.ids(A) == list(range(12))
    assert town.ids(B) == [*range(4), *range(8, 12)]


def walk_sink_missing_then_it_is_put_back() -> None:
    town = Town()
    town.decided_and_unpublished()
    refused(town.job(A), SinkMissing, "'b'", "start once with a sink named 'b'")
    town.drained(town.job(A, B))
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_sink_missing_then_given_up() -> None:
    town = Town()
    town.decided_and_unpublished()
    without = town.job(A)
    refused(without, SinkMissing, "accept-loss FILE 1 --sink 'b'")
    proposal = propose_accept_loss(town.context(without), epoch=1, sink=B)
    say(without, proposal, "4 rows of epoch 1 in 2 slots in sink 'b' are given up")
    town.drained(without)
    assert town.ids(A) == list(range(12))
    assert town.ids(B) == list(range(4))


def walk_sink_missing_with_undecided_work_then_given_up() -> None:
    town = Town(FakeTransactionalSink, FakeTwoPhaseSink)
    town.harness.life(until=0)
    town.harness.life(DiesAt(DECIDED))
    without = town.job(A)
    refused(without, SinkMissing, "accept-loss FILE 1 --sink 'b'")
    proposal = propose_accept_loss(town.context(without), epoch=1, sink=B)
    say(without, proposal, "runs it again, without a sink 'b'")
    town.drained(without)
    assert town.ids(A) == list(range(12))
    assert town.ids(B) == list(range(4))


def walk_rows_rejected_then_diverted(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "rows.db", table="rows")
    sink.check(SCHEMA, output_mode="append")
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database, database:
        database.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON rows WHEN NEW.id = 5 BEGIN SELECT RAISE(ABORT, 'unlucky'); END"
        )
    sink.check(SCHEMA, output_mode="append")
    read = lambda: table_rows(tmp_path / "rows.db", "rows")  # noqa: E731
    harness = Harness(SinkUnderTest(sink, read), source=Source(ends=(4, 8, 12)))
    town = Town()
    refused(harness, RowsRejected, "onceward poison")
    (path,) = divert_poison(town.context(harness), tmp_path / "rejected")
    assert len(path.read_text().splitlines()) == 1
    harness.drain()
    assert sorted(int(str(row["id"])) for row in read()) == [i for i in range(12) if i != 5]


def walk_staged_rows_missing_then_the_folder_is_shared() -> None:
    """Nothing is decided: when the hosts share what they must, the epoch runs again."""
    town = Town()
    elsewhere = Behaviour(runs_on=SecondHost.without(town.harness.sinks).some(lambda epoch, slot: True))
    ending = town.harness.life(behaviour=elsewhere)
    assert isinstance(ending, Failed)
    assert type(ending.error) is StagedRowsMissing
    assert ending.error.hint
    assert town.ids(A) == town.ids(B) == []
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_fenced_then_one_of_them_goes_on() -> None:
    town = Town()
    first = town.harness.life(PausedAt("sink a pre_commit", lambda: town.job(A, B).drain()))
    assert isinstance(first, Failed)
    assert type(first.error) is Fenced
    assert "stop one of them" in str(first.error.hint)
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))
