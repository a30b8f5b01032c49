"""`onceward checkpoints`: real checkpoints, each damage found, and Spark itself as the judge of what is whole."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.clock import SystemClock
from onceward.contracts import Severity
from onceward.errors import CheckpointRefused, CheckpointRolledBack
from onceward.verify import look, verify

from .damaged import (
    COMMON,
    EPOCHS,
    KINDS,
    OFTEN,
    Checkpoints,
    Damage,
    Made,
    kind_parameter,
    needed,
    random_damage,
    settings,
)

DAMAGES = 1000
SAMPLE = 200


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    return Checkpoints(spark, tmp_path_factory.mktemp("made"))


@pytest.fixture(params=[kind_parameter(kind) for kind in KINDS])
def one(request: pytest.FixtureRequest, made: Checkpoints) -> Iterator[Made]:
    """Each of them, put back as it was."""
    found = made[request.param]
    found.reset()
    yield found
    found.reset()


@pytest.fixture(scope="module")
def sound(spark: SparkSession) -> Callable[[Made], list[tuple[Any, ...]]]:
    """What a checkpoint leads to when nothing is wrong with it; it is then put back as it was."""
    known: dict[str, list[tuple[Any, ...]]] = {}

    def rows(one: Made) -> list[tuple[Any, ...]]:
        if one.kind not in known:
            one.reset()
            known[one.kind] = one.run(spark)
        one.reset()
        return known[one.kind]

    return rows


def goes_on(one: Made, spark: SparkSession, expected: list[tuple[Any, ...]]) -> bool:
    """Whether the job goes on as if nothing were wrong. Of a source whose lists are damaged Spark may also go on and
    lose rows; that is no going on."""
    before = one.table()
    try:
        return one.run(spark) == expected
    except Exception:
        assert one.table() == before
        return False


def decided(one: Made) -> int:
    return max(int(path.name) for path in (one.pristine / "checkpoint" / "commits").iterdir() if path.name.isdigit())


def test_a_sound_checkpoint_has_nothing_to_be_found(one: Made) -> None:
    report = verify(one.checkpoint, clock=SystemClock())
    assert report.findings == ()
    assert report.verdict == f"this checkpoint can be resumed after epoch {decided(one)}"
    assert verify(one.checkpoint, clock=SystemClock(), quick=True).findings == ()


def test_looking_changes_nothing(one: Made) -> None:
    def files() -> dict[str, tuple[int, bytes]]:
        paths = [path for path in one.checkpoint.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}

    before = files()
    verify(one.checkpoint, clock=SystemClock())
    Damage(f"offsets/{decided(one)}", "flip").do(one.checkpoint)
    damaged = files()
    verify(one.checkpoint, clock=SystemClock())
    assert files() == damaged != before


SEEDED = [
    ("stateless", "sources/0/*.compact", "flip", True),
    ("stateless", "offsets/[0-9]*", "cut", False),
    ("stateless", "onceward/settled/*", "flip", False),
    ("stateless", "onceward/identity.1.json", "flip", True),
    ("stateless", "metadata", "flip", True),
    ("count", "offsets/[0-9]*", "flip", True),
    ("count", "commits/[0-9]*", "flip", True),
    ("count", "state/0/0/*.delta", "remove", True),
    ("count", "state/0/1/*.delta", "flip", True),
    ("count", "state/0/0/*.delta", "cut", True),
    ("count", "state/0/0/*.snapshot", "flip", False),
    ("count", "state/0/1/*.snapshot", "flip", True),
    ("count", "state/0/0/_metadata/schema", "flip", True),
    ("count", "state/0/0/_metadata/schema", "remove", False),
    ("count", "state/0/_metadata/metadata", "flip", False),
    ("window", "state/0/0/*.zip", "flip", False),
    ("window", "state/0/0/SSTs/*.sst", "flip", False),
    ("window", "state/0/0/SSTs/*.sst", "remove", False),
    ("window", "state/0/1/*.zip", "flip", True),
    ("window", "state/0/1/SSTs/*.sst", "flip", True),
    ("window", "state/0/1/SSTs/*.sst", "remove", True),
    ("window", "state/0/1/*.changelog", "flip", True),
    ("window", "state/0/1/*.changelog", "remove", True),
    ("dedupe", "state/0/0/*.delta", "remove", True),
    ("join", "state/0/0/left-keyToNumValues/*.delta", "remove", True),
    ("join", "state/0/1/right-keyWithIndexToValue/*.delta", "flip", True),
    ("join", "state/0/0/right-keyToNumValues/_metadata/schema", "remove", False),
    ("format-2", "state/0/0/*.changelog", "flip", True),
    ("format-2", "state/0/1/*.changelog", "remove", True),
    ("format-2", "commits/[0-9]*", "flip", True),
    ("rows", "state/0/_metadata/v2/[0-9]*", "flip", True),
    ("rows", "state/0/_stateSchema/default/[0-9]*", "remove", True),
    ("rows", "state/0/1/*.changelog", "remove", True),
    ("rows", "state/0/0/*.zip", "flip", False),
    ("rows", "state/0/1/SSTs/*.sst", "remove", True),
    ("frames", "state/0/_stateSchema/default/[0-9]*", "flip", True),
    ("frames", "state/0/0/*.changelog", "flip", True),
]


SEEDED_IDS = [" ".join(map(str, one)) for one in SEEDED]


@pytest.mark.parametrize(
    ("kind", "pattern", "how", "is_fatal"), [kind_parameter(*one) for one in SEEDED], ids=SEEDED_IDS
)
def test_each_seeded_damage_is_found(made: Checkpoints, kind: str, pattern: str, how: str, is_fatal: bool) -> None:
    one = made[kind]
    one.reset()
    path = one.newest(pattern)
    Damage(path, how).do(one.checkpoint)
    report = look(one.checkpoint)
    assert report.is_resumable is not is_fatal, report
    named = path.removeprefix("onceward/")
    assert any(named in f"{found.about} {found.detail}" for found in report.findings), report
    assert all(found.fix for found in report.findings)


# Spark takes seconds for each: `make test` asks it about every fourth, `make soak` about all.
@pytest.mark.parametrize(
    ("kind", "pattern", "how", "is_fatal"),
    [
        pytest.param(*one, id=name, marks=[pytest.mark.soak] if number % 4 or one[0] not in OFTEN else [])
        for number, (one, name) in enumerate(zip(SEEDED, SEEDED_IDS, strict=True))
    ],
)
def test_of_each_seeded_damage_spark_finds_the_same(
    made: Checkpoints,
    sound: Callable[[Made], list[tuple[Any, ...]]],
    spark: SparkSession,
    kind: str,
    pattern: str,
    how: str,
    is_fatal: bool,
) -> None:
    one = made[kind]
    expected = sound(one)
    Damage(one.newest(pattern), how).do(one.checkpoint)
    assert goes_on(one, spark, expected) is not is_fatal


def test_a_missing_snapshot_is_made_up_for_by_an_older_one(made: Checkpoints, spark: SparkSession) -> None:
    one = made["count"]
    one.reset()
    Damage(one.newest("state/0/0/*.snapshot"), "remove").do(one.checkpoint)
    assert look(one.checkpoint).findings == ()
    assert len(one.run(spark)) == 4


@pytest.mark.parametrize("kinds", [OFTEN, pytest.param(tuple(KINDS), marks=pytest.mark.soak)], ids=len)
def test_random_damage_is_found_where_it_matters(made: Checkpoints, kinds: tuple[str, ...], seed: int) -> None:
    chance = random.Random(seed)
    some = {kind: made[kind] for kind in kinds}
    files = {kind: one.files() for kind, one in some.items()}
    wanted = {kind: needed(one, decided(one)) for kind, one in some.items()}
    for one in some.values():
        one.reset()
    found = 0
    for _ in range(DAMAGES):
        one = some[chance.choice(kinds)]
        damage = random_damage(one, files[one.kind], chance)
        damage.do(one.checkpoint)
        report = look(one.checkpoint)
        is_changed = not _is_as_it_was(one, damage)
        if is_changed and damage.path in wanted[one.kind] and not _is_put_right(report, damage):
            assert not report.is_resumable, f"seed {seed}: {one.kind} {damage}"
            found += 1
        if report.errors:
            assert is_changed, f"seed {seed}: {damage}"
        damage.undo(one)
    assert found > DAMAGES / 20
    assert all(not look(one.checkpoint).findings for one in some.values())


def _is_as_it_was(one: Made, damage: Damage) -> bool:
    now, before = one.checkpoint / damage.path, one.pristine / "checkpoint" / damage.path
    return now.exists() and now.read_bytes() == before.read_bytes()


def _is_put_right(report: Any, damage: Damage) -> bool:
    """A torn log entry whose text a marker has: the next start writes it again, and the report says so."""
    words = " ".join(one.detail for one in report.findings if one.about == damage.path)
    return damage.path.startswith(("offsets/", "commits/")) and ("put back" in words or damage.how == "remove")


@pytest.mark.soak
@pytest.mark.parametrize("count", [SAMPLE])
def test_of_random_damage_spark_finds_what_is_found(
    made: Checkpoints, sound: Callable[[Made], list[tuple[Any, ...]]], spark: SparkSession, count: int, seed: int
) -> None:
    """Of Spark's own files. Half of them, or more, are of the newest epoch: those matter."""
    chance = random.Random(seed)
    disagreed = []
    for _ in range(count):
        one = made[chance.choice(list(KINDS))]
        expected = sound(one)
        files = [path for path in one.files() if not path.startswith("onceward/")]
        damage = random_damage(one, files if chance.random() < 0.5 else sorted(needed(one, decided(one))), chance)
        damage.do(one.checkpoint)
        report = look(one.checkpoint)
        if goes_on(one, spark, expected) is not report.is_resumable:
            disagreed.append(f"{one.kind} {damage}: {report.findings}")
    assert not disagreed, "\n".join([f"seed {seed}", *disagreed])


def test_a_running_job_is_never_called_damaged(spark: SparkSession, tmp_path: Path) -> None:
    """With as little retention as Spark allows: files vanish all the time."""
    one = Made("count", tmp_path / "running")
    for number in range(10):
        one.add_file(number)
    values = {**COMMON, **KINDS["count"].settings, "spark.sql.streaming.minBatchesToRetain": "3"}
    looks = 0
    with settings(spark, values):
        worker = threading.Thread(target=lambda: one.job(max_unpublished_epochs=1).run(spark))
        worker.start()
        while worker.is_alive():
            if (one.checkpoint / "offsets").is_dir():
                report = verify(one.checkpoint, clock=SystemClock())
                assert report.is_resumable, report
                looks += 1
    worker.join()
    assert looks > 10
    assert len(one.table()) == 4


def test_a_receipt_that_the_target_lacks_is_found_only_with_the_job(made: Checkpoints, tmp_path: Path) -> None:
    one = made["stateless"]
    one.reset()
    with closing(sqlite3.connect(one.database)) as database, database:
        database.execute("DELETE FROM onceward_receipts WHERE epoch = ?", (decided(one),))
    file = tmp_path / "job.py"
    file.write_text(
        "from onceward import Job\nfrom onceward.sinks import SQLiteSink\n"
        f"job = Job(name='stateless', checkpoint={str(one.checkpoint)!r}, pipeline=lambda spark: None,\n"
        f"          sinks=[SQLiteSink({str(one.database)!r}, table='t')])\n"
    )
    alone = CliRunner().invoke(app, ["checkpoints", "verify", str(one.checkpoint), "--json"])
    assert alone.exit_code == 0, alone.output
    asked = CliRunner().invoke(app, ["checkpoints", "verify", str(one.checkpoint), "--job", str(file), "--json"])
    assert asked.exit_code == 1, asked.output
    document = json.loads(asked.output)
    assert [found["about"] for found in document["findings"]] == ["targets"]
    assert f"lacks epoch {decided(one)}" in document["findings"][0]["detail"]


def restore(one: Made, epoch: int, *more: str) -> Any:
    arguments = ["checkpoints", "restore", str(one.checkpoint), "--epoch", str(epoch), "--json", *more]
    return CliRunner().invoke(app, [*arguments, "--yes", "--because", "a disk went bad"])


@pytest.mark.parametrize("kind", [kind_parameter("dedupe"), "window"])
def test_restored_by_one_epoch_the_job_goes_on_and_nothing_comes_twice(
    made: Checkpoints, spark: SparkSession, kind: str
) -> None:
    one = made[kind]
    one.reset()
    expected = one.run(spark)
    one.reset()
    last = decided(one)
    pattern = "state/0/*/*.changelog" if kind == "window" else "state/0/*/*.delta"
    Damage(one.newest(pattern), "flip").do(one.checkpoint)
    report = look(one.checkpoint)
    assert report.candidate is not None
    assert (report.candidate.epoch, report.candidate.repeated) == (last - 1, None)
    done = restore(one, last - 1)
    assert done.exit_code == 0, done.output
    moved = json.loads(done.stdout)
    assert f"commits/{last}" in moved["moved"]
    assert (one.checkpoint / moved["to"] / "commits" / str(last)).exists()
    again = look(one.checkpoint)
    assert again.is_resumable, again
    assert all(found.severity is not Severity.ERROR for found in again.findings)
    assert one.run(spark) == expected


def test_restored_further_it_is_refused_until_the_repetition_is_accepted_twice(
    made: Checkpoints, spark: SparkSession
) -> None:
    one = made["stateless"]
    one.reset()
    last = decided(one)
    refused = restore(one, last - 3)
    assert isinstance(refused.exception, CheckpointRefused), refused.output
    assert look(one.checkpoint).findings == ()
    assert restore(one, last - 3, "--accept", "rollback").exit_code == 0
    with pytest.raises(CheckpointRolledBack):
        one.run(spark)
    rows = one.run(spark, accept="rollback")
    assert len({row[0] for row in rows}) == 4 * (EPOCHS + 1)
    assert len(rows) == 4 * (EPOCHS + 1) + 4 * 3
