"""Scenario 95: rows at fault are found whatever the server says of them, are taken out, and the job runs on."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from mysql_workspace import JOB, MySQLWorkspace, send

from onceward.admin import divert_poison, find_poison
from onceward.contracts import SlotValues
from onceward.errors import RowsRejected
from onceward.recovery import look_at
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.mysql.errors import CLASSES
from onceward.testing import Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA

pytestmark = pytest.mark.cluster

JOBS = 16
SOAK = 160
ROWS = 24
OTHERS = "`key` BIGINT, epoch BIGINT, slot BIGINT, version VARCHAR(40), attempt BIGINT"
VARIANTS: dict[str, dict[str, Any]] = {"append": {"two_phase": False}, "upsert": {"mode": "upsert", "keys": ["id"]}}

# What the table has against the ids in {bad}. The trigger of the last one fails by a number that is in no list.
FAULTS: dict[str, list[str]] = {
    "a constraint": ["ALTER TABLE `rows` ADD CONSTRAINT odd CHECK (id NOT IN ({bad}))"],
    "a signal": ["CREATE TRIGGER odd BEFORE INSERT ON `rows` FOR EACH ROW IF NEW.id IN ({bad}) THEN {signal}; END IF"],
    "no partition": ["ALTER TABLE `rows` PARTITION BY LIST (id) (PARTITION p VALUES IN ({good}))"],
    "a foreign key": [
        "CREATE TABLE others (id BIGINT PRIMARY KEY)",
        "INSERT INTO others SELECT seq FROM seq_0_to_99 WHERE seq NOT IN ({bad})",
        "ALTER TABLE `rows` ADD CONSTRAINT odd FOREIGN KEY (id) REFERENCES others (id)",
    ],
    "a division by zero": [
        "CREATE TRIGGER odd BEFORE INSERT ON `rows` FOR EACH ROW "
        "IF NEW.id IN ({bad}) THEN INSERT INTO side VALUES (1 / (NEW.id - NEW.id)); END IF",
    ],
    "an unknown error": [
        "CREATE TRIGGER odd BEFORE INSERT ON `rows` FOR EACH ROW "
        "IF NEW.id IN ({bad}) THEN {signal}, MYSQL_ERRNO = 5999; END IF",
    ],
    "a value too long elsewhere": [
        "CREATE TRIGGER odd BEFORE INSERT ON `rows` FOR EACH ROW "
        "IF NEW.id IN ({bad}) THEN INSERT INTO narrow VALUES ('too long'); END IF",
    ],
    "a generated column": ["ALTER TABLE `rows` ADD small TINYINT AS (IF(id IN ({bad}), 1000, 1)) STORED"],
}
SIGNAL = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'odd id'"


@pytest.mark.parametrize("part", range(4))
def test_whatever_is_wrong_with_rows_they_are_named_taken_out_and_the_job_runs_on(
    quick: MySQLWorkspace, part: int, tmp_path: Path, record_sweep: list[str]
) -> None:
    size = JOBS // 4
    walked = Counter(walk(quick, seed, tmp_path) for seed in range(part * size, (part + 1) * size))
    record_sweep.append(f"mysql, rows at fault: {dict(walked)}")


@pytest.mark.soak
def test_a_hundred_jobs_with_rows_at_fault_run_on(
    quick: MySQLWorkspace, tmp_path: Path, record_sweep: list[str]
) -> None:
    walked = Counter(walk(quick, seed, tmp_path) for seed in range(JOBS, JOBS + SOAK))
    record_sweep.append(f"soak, mysql, rows at fault: {dict(walked)}")


@pytest.mark.skipif("ONCEWARD_SEED" not in os.environ, reason="replays the seed in ONCEWARD_SEED")
def test_replay_of_one_job(quick: MySQLWorkspace, tmp_path: Path) -> None:
    walk(quick, int(os.environ["ONCEWARD_SEED"]), tmp_path)


def walk(workspace: MySQLWorkspace, seed: int, folder: Path) -> str:
    random = Random(seed)
    fault, variant = list(FAULTS)[seed % len(FAULTS)], random.choice(list(VARIANTS))
    bad = sorted(random.sample(range(ROWS), random.randint(1, 4)))
    with seeded(seed, fault, variant, bad):
        make_table(workspace, fault, bad)
        sink = workspace.sink(**VARIANTS[variant], name=f"rows {seed}", before_triggers="allow")
        sink.check(SCHEMA, output_mode="append")
        harness = Harness(
            SinkUnderTest(sink, workspace.rows, ordered=False),
            source=Source(ends=(ROWS // 2, ROWS), keys=3),
            rows_in_a_batch=random.choice([1, 4, 30]),
        )
        named: list[int] = []
        for _ in range(4):
            ending = harness.life()
            if isinstance(ending, Finished):
                break
            assert isinstance(ending, Failed), ending
            assert isinstance(ending.error, RowsRejected), ending.error
            workspace_of_job = looked(harness)
            before = workspace.rows()
            named += sorted(int(row.values["id"]) for row in find_poison(workspace_of_job))
            assert workspace.rows() == before, "looking changes nothing"
            divert_poison(workspace_of_job, folder / str(seed))
        assert isinstance(harness.life(), Finished)
        assert named == bad
        assert sorted(row["id"] for row in workspace.rows()) == [number for number in range(ROWS) if number not in bad]
    return f"{fault}, {variant}"


@contextmanager
def seeded(seed: int, *drawn: object) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"ONCEWARD_SEED={seed}: {drawn}")
        raise


def make_table(workspace: MySQLWorkspace, fault: str, bad: list[int]) -> None:
    workspace.query("DROP TABLE IF EXISTS `rows`, others, side, narrow")
    for table in ("side (x DOUBLE NOT NULL)", "narrow (x VARCHAR(3))", f"`rows` (id BIGINT PRIMARY KEY, {OTHERS})"):
        workspace.query(f"CREATE TABLE {table}")
    good = [number for number in range(ROWS) if number not in bad]
    for statement in FAULTS[fault]:
        workspace.query(statement.format(bad=", ".join(map(str, bad)), good=", ".join(map(str, good)), signal=SIGNAL))


def looked(harness: Harness) -> Any:
    return look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )[0]


# --- values that the sink itself refuses --------------------------------------------------------

YEAR_10000 = 253_402_300_800_000_000


@pytest.mark.parametrize("mode", ["append", "upsert", "replace"])
@pytest.mark.parametrize(
    ("kind", "values", "bad"),
    [
        (pa.float64(), [1.0, float("nan"), 2.0, float("inf"), None], {1, 3}),
        (pa.timestamp("us"), [0, YEAR_10000, None, -62_135_596_800_000_001], {1, 3}),
        (pa.timestamp("s"), [0, 1 << 62, -(1 << 62), 5], {1, 2}),
        (pa.date32(), [0, 2_932_897, -719_163], {1, 2}),
        (pa.time64("ns"), [0, 1_000, 1_001], {2}),
    ],
    ids=["not finite", "years", "years in seconds", "days", "nanoseconds"],
)
def test_s95_the_rows_that_the_sink_itself_refuses_are_named_too(
    workspace: MySQLWorkspace, mode: str, kind: pa.DataType, values: list[Any], bad: set[int]
) -> None:
    numbers = pa.array(range(len(values)), pa.int64())
    raw = pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()) if kind != pa.float64() else None
    batch = pa.record_batch({"n": numbers, "x": raw.view(kind) if raw is not None else pa.array(values, kind)})
    options = {"append": {"two_phase": False}, "upsert": {"mode": mode, "keys": ["n"]}, "replace": {"mode": mode}}[mode]
    sink = workspace.sink(**options)
    sink.check(batch.schema, output_mode="complete" if mode == "replace" else "update")
    with pytest.raises(RowsRejected, match=r"column 'x' has .* in row "):
        send(sink, 0, batch)
    named = sink.find_rejected([SlotValues(3, batch.num_rows, None, lambda: iter([batch]))], JOB, 0)
    assert {(one.slot, one.row) for one in named} == {(3, row) for row in bad}
    assert workspace.rows() == []
    send(sink, 0, batch.filter(pa.array([row not in bad for row in range(len(values))])))
    assert len(workspace.rows()) == len(values) - len(bad)


def test_a_replacement_that_a_foreign_key_forbids_blames_no_row(workspace: MySQLWorkspace) -> None:
    schema = pa.schema([("id", pa.int64())])
    workspace.query("CREATE TABLE `rows` (id BIGINT PRIMARY KEY)")
    sink = workspace.sink(mode="replace")
    sink.check(schema, output_mode="complete")
    send(sink, 0, pa.record_batch([[1]], schema=schema))
    workspace.query("CREATE TABLE child (id BIGINT, FOREIGN KEY (id) REFERENCES `rows` (id))")
    workspace.query("INSERT INTO child VALUES (1)")
    batch = pa.record_batch([[1, 2]], schema=schema)
    for act in (
        lambda: send(sink, 1, batch),
        lambda: sink.find_rejected([SlotValues(0, 2, None, lambda: iter([batch]))], JOB, 1),
    ):
        with pytest.raises(Exception, match="foreign key constraint fails") as failed:
            act()
        assert not isinstance(failed.value, RowsRejected)


# --- the table of errors ------------------------------------------------------------------------


def test_the_table_of_errors_in_the_docs_is_that_of_the_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "targets" / "mysql.md").read_text()
    told: dict[str, set[int]] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0] in {kind.value for kind in ErrorClass}:
            told.setdefault(cells[0], set()).update(int(code) for code in re.findall(r"\d+", cells[1]))
            for code in re.findall(r"\d+", cells[1]):
                kind = next(kind for kind in CLASSES if kind.value == cells[0])
                assert CLASSES[kind][int(code)] == cells[2], f"{code}: {cells[2]}"
    assert told == {kind.value: set(codes) for kind, codes in CLASSES.items()}


def test_no_error_is_of_two_kinds() -> None:
    codes = Counter(code for kinds in CLASSES.values() for code in kinds)
    assert [code for code, count in codes.items() if count > 1] == []
