"""From a damaged file, or one of a newer format, to a job that runs on."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sink_cases import table_rows
from town import AT, DECIDED, A, B, Town, one_of_two_lost, refused, say

from onceward.admin import (
    divert_poison,
    propose_accept_loss,
    propose_epoch_is_published,
    propose_identity,
    propose_slot_is_in,
    propose_withdraw,
    write_identity,
)
from onceward.errors import DamagedFile, NewerFormat, OutputLost
from onceward.sinks import SQLiteSink
from onceward.spark.rewind import rewind
from onceward.storage import LocalStorage
from onceward.testing import DiesAt, DirectoryLogs, Harness, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA


def walk_a_settled_marker_that_nobody_needs() -> None:
    """Scenario 83: its name tells that its epoch is settled. No exit is needed."""
    town = Town()
    town.harness.life(until=1)
    for marker in ("settled/0", "settled/1"):
        town.flip(marker)
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_a_settled_marker_of_an_epoch_that_spark_runs_again() -> None:
    town = Town()
    town.harness.life(until=1)
    town.logs.forget_commit(1)
    town.flip("settled/1")
    refused(town.harness, DamagedFile, "epoch-is-published FILE 1")
    say(town.harness, propose_epoch_is_published(town.context(), epoch=1), "consumed and staged nowhere")
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_a_manifest_of_a_decided_epoch_then_rewind(tmp_path: Path) -> None:
    town = Town()
    job = town.job(storage=LocalStorage(tmp_path / "onceward"), logs=DirectoryLogs(tmp_path))
    job.life(until=0)
    job.life(DiesAt(DECIDED, after=True))
    (tmp_path / "onceward" / "manifests" / "1.0.json").write_bytes(b"torn")
    refused(job, DamagedFile, "manifests/1.0.json is damaged", "onceward rewind CHECKPOINT 1")
    rewind(tmp_path, 1)
    town.drained(job)
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_a_manifest_of_a_decided_epoch_then_given_up() -> None:
    town = Town()
    town.decided_and_unpublished()
    town.flip("manifests/1.0.json")
    refused(town.harness, DamagedFile, "accept-loss FILE 1")
    say(town.harness, propose_accept_loss(town.context(), epoch=1), "no manifest says what was staged for epoch 1")
    town.drained()
    assert town.ids(A) == town.ids(B) == [*range(4), *range(8, 12)]


def walk_a_manifest_of_an_undecided_epoch_that_nobody_needs() -> None:
    town = Town()
    town.harness.life(until=0)
    town.harness.life(DiesAt(DECIDED))
    town.flip("manifests/1.0.json")
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))


def taken_over_and_decided(town: Town) -> None:
    town.harness.life(until=0)
    town.harness.life(DiesAt(DECIDED))
    town.harness.life(DiesAt(DECIDED, after=True))


def walk_a_fate_of_a_decided_epoch_then_given_up() -> None:
    town = Town()
    taken_over_and_decided(town)
    town.flip("manifests/1.1.fate")
    refused(town.harness, DamagedFile, "manifests/1.1.fate is damaged", "accept-loss FILE 1")
    say(town.harness, propose_accept_loss(town.context(), epoch=1))
    town.drained()
    assert town.ids(A) == town.ids(B) == [*range(4), *range(8, 12)]


def walk_a_fate_of_an_undecided_epoch_and_a_reservation_that_nobody_needs() -> None:
    town = Town()
    town.harness.life(until=0)
    town.harness.life(DiesAt(DECIDED))
    town.harness.life(DiesAt(DECIDED))
    town.flip("manifests/1.1.fate")
    town.flip("manifests/1.1.reserved")
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_a_segment_then_given_up_in_its_sink() -> None:
    town = Town()
    town.decided_and_unpublished()
    town.flip("wal/1/")
    refused(town.harness, DamagedFile, "is not what was staged", "accept-loss FILE 1")
    assert town.ids(A) == list(range(8)), "the other sink has it by now: a rewind would repeat it"
    say(town.harness, propose_accept_loss(town.context(), epoch=1, sink=B), "4 rows of epoch 1 in 2 slots in sink 'b'")
    town.drained()
    assert town.ids(A) == list(range(12))
    assert town.ids(B) == [*range(4), *range(8, 12)]


def walk_a_segment_of_which_one_slot_is_brought_in_by_hand() -> None:
    town = Town()
    town.decided_and_unpublished()
    path = town.flip("wal/1/")
    refused(town.harness, DamagedFile)
    manifest = town.context().register.manifest(1, 0)
    assert manifest is not None
    slot = next(one for one in manifest.sinks[B].slots if one.handle["segment"] == path)
    lost = [row["id"] for row in town.targets[A].rows if (row["epoch"], row["slot"]) == (1, slot.slot)]
    town.targets[B].rows.extend({"id": i, "key": i % 3, "epoch": 1} for i in lost)
    proposal = propose_slot_is_in(town.context(), epoch=1, sink=B, slot=slot.slot)
    say(town.harness, proposal, f"its {len(lost)} rows count as being in the target")
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))


def identity_anew(town: Town, **more: Any) -> None:
    job = town.harness
    parts = {
        "sinks": job.sinks,
        "storage": job.storage,
        "decisions": job.logs,
        "directory_id": job.directory_id,
        "clock": job.clock,
    }
    new = propose_identity(name=job.name, **parts, **more)
    write_identity(job.storage, new, by="ann@host", at=AT, because="a bit was flipped")


def walk_an_identity_that_is_found_out_from_what_is_staged() -> None:
    town = Town()
    town.decided_and_unpublished()
    generation = town.context().job.generation
    town.flip("identity.json")
    refused(town.harness, DamagedFile, "onceward resolve identity FILE")
    identity_anew(town)
    assert town.context().job.generation == generation
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12)), "what was staged under it is published, once"


def walk_an_identity_that_is_found_out_from_the_receipts() -> None:
    town = Town()
    town.harness.life(until=1)
    town.flip("identity.json")
    refused(town.harness, DamagedFile, "identity.json is damaged")
    identity_anew(town)
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))


def walk_a_diversion_that_is_given_again(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "rows.db", table="rows")
    sink.check(SCHEMA, output_mode="append")
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database, database:
        database.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON rows WHEN NEW.id = 5 BEGIN SELECT RAISE(ABORT, 'unlucky'); END"
        )
    sink.check(SCHEMA, output_mode="append")
    read = lambda: table_rows(tmp_path / "rows.db", "rows")  # noqa: E731
    town = Town()
    harness = Harness(SinkUnderTest(sink, read), source=Source(ends=(4, 8, 12)), storage=town.storage, logs=town.logs)
    harness.life()
    divert_poison(town.context(harness), tmp_path / "rejected")
    town.flip("diverted/1.")
    refused(harness, DamagedFile, "poison divert")
    divert_poison(town.context(harness, past_damage=True), tmp_path / "rejected")
    harness.drain()
    town.flip("diverted/1.")
    harness.drain()
    assert sorted(int(str(row["id"])) for row in read()) == [i for i in range(12) if i != 5]


def walk_a_resolution_that_is_withdrawn_and_given_again() -> None:
    town = one_of_two_lost()
    say(town.harness, propose_accept_loss(town.context(), epoch=1, sink=A))
    town.flip("resolutions/0.json")
    refused(town.harness, DamagedFile, "onceward resolve withdraw FILE 0")
    say(town.harness, propose_withdraw(town.context(past_damage=True), 0), "it cannot be read")
    refused(town.harness, OutputLost)
    say(town.harness, propose_accept_loss(town.context(), epoch=1, sink=A))
    town.drained()
    assert town.ids(A) == [*range(4), *range(8, 12)]


def walk_a_newer_format_then_the_release_that_knows_it() -> None:
    town = Town()
    town.harness.life(until=0)
    town.harness.life(DiesAt(DECIDED))
    path = town.file("manifests/1.0.json")
    known = town.storage.files[path]
    header, _, body = known.partition(b"\n")
    words = header.split()
    newer = b" ".join([*words[:2], b"99", *words[3:]]) + b"\n" + body
    town.storage.files[path] = newer
    refused(town.harness, NewerFormat, "upgrade")
    assert town.storage.files[path] == newer, "and nothing was taken over that is not understood"
    town.storage.files[path] = known
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))
