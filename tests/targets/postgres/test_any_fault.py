"""Scenario 95: whatever is wrong with a row, it is named and can be diverted, and then the job goes on.

`ONCEWARD_SEED=123 pytest tests/targets/postgres/test_any_fault.py -k replay` plays one of them again.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from onceward.admin import divert_poison, find_poison
from onceward.errors import RowsRejected
from onceward.recovery import look_at
from onceward.testing import Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA

from .conftest import Place

pytestmark = pytest.mark.cluster
SEEDS = 24
SOAK = 300
RAISE = (
    "CREATE FUNCTION ~.judge() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN IF NEW.id IN ({bad}) THEN {raises}; END IF; RETURN NEW; END'"
)
TRIGGER = "CREATE {} judge {} INSERT OR UPDATE ON ~.rows {} FOR EACH ROW EXECUTE FUNCTION ~.judge()"
BEFORE, AFTER = TRIGGER.format("TRIGGER", "BEFORE", ""), TRIGGER.format("TRIGGER", "AFTER", "")
AT_COMMIT = TRIGGER.format("CONSTRAINT TRIGGER", "AFTER", "DEFERRABLE INITIALLY DEFERRED")
# The stream has only small numbers: a faulty row is one that an index, a constraint or a trigger makes so.
FAULTS: dict[str, list[str]] = {
    "check": ["ALTER TABLE ~.rows ADD CHECK (id NOT IN ({bad}))"],
    "division by zero": ["ALTER TABLE ~.rows ADD CHECK (CASE WHEN id IN ({bad}) THEN 1 / (id - id) > 0 ELSE true END)"],
    "overflow of a generated column": [
        "ALTER TABLE ~.rows ADD g smallint GENERATED ALWAYS AS (CASE WHEN id IN ({bad}) THEN 99999 ELSE 0 END) STORED"
    ],
    "index entry too long": [
        "ALTER TABLE ~.rows ADD g text GENERATED ALWAYS AS (CASE WHEN id IN ({bad}) THEN ~.noise() END) STORED",
        "CREATE INDEX ON ~.rows (g)",
    ],
    "unique": [
        "ALTER TABLE ~.rows ADD g bigint GENERATED ALWAYS AS (CASE WHEN id IN ({bad}) THEN -1 ELSE id END) STORED",
        "ALTER TABLE ~.rows ADD EXCLUDE (g WITH =) WHERE (g < 0)",
    ],
    "foreign key at commit": [
        "CREATE TABLE ~.parent (id bigint PRIMARY KEY)",
        "INSERT INTO ~.parent SELECT n FROM generate_series(0, 99) AS n WHERE n NOT IN ({bad})",
        "ALTER TABLE ~.rows ADD FOREIGN KEY (id) REFERENCES ~.parent DEFERRABLE INITIALLY DEFERRED",
    ],
    "raised before": [RAISE.replace("{raises}", "RAISE ''no''"), BEFORE],
    "raised with a code of ours": [RAISE.replace("{raises}", "RAISE ''no'' USING ERRCODE = ''MINE1''"), AFTER],
    "raised at commit": [RAISE.replace("{raises}", "RAISE ''no''"), AT_COMMIT],
    "our code at commit": [RAISE.replace("{raises}", "RAISE ''no'' USING ERRCODE = ''ZZ001''"), AT_COMMIT],
    "another table gone": [RAISE.replace("{raises}", "INSERT INTO ~.nowhere VALUES (1)"), AFTER],
    "another privilege missing": [RAISE.replace("{raises}", "RAISE insufficient_privilege"), AFTER],
    "not supported": [RAISE.replace("{raises}", "RAISE feature_not_supported"), AFTER],
    "internal error": [RAISE.replace("{raises}", "RAISE internal_error"), AFTER],
    "assertion": [RAISE.replace("{raises}", "ASSERT false, ''no''"), BEFORE],
}
NOISE = (
    "CREATE FUNCTION ~.noise() RETURNS text IMMUTABLE LANGUAGE sql AS "
    "$$SELECT string_agg(md5(n::text), '') FROM generate_series(1, 300) AS n$$"
)
OPTIONS = {
    "append": {"two_phase": False},
    "upsert": {"mode": "upsert", "keys": ["id"]},
    "ordered": {"mode": "upsert", "keys": ["id"], "order_by": "slot"},
}


def play(place: Place, seed: int, folder: Path) -> str:
    random = Random(seed)
    fault, variant = random.choice(list(FAULTS)), random.choice(list(OPTIONS))
    bad = sorted(random.sample(range(12), random.randrange(1, 4)))
    rejected = bad[1:] if fault == "unique" else bad
    place.clear()
    place.sink(**OPTIONS[variant]).choose().check(SCHEMA, output_mode="append")
    for statement in (NOISE, *FAULTS[fault]):
        place.query(statement.replace("{bad}", ", ".join(map(str, bad))))
    sink = place.sink(**OPTIONS[variant], triggers=["judge"]).choose()
    sink.check(SCHEMA, output_mode="append")
    source = Source(ends=(12, 20), keys=3)
    harness = Harness(
        SinkUnderTest(sink, place.rows, ordered=False), source=source, rows_in_a_batch=random.choice((1, 4, 12))
    )
    told = f"ONCEWARD_SEED={seed}: {fault}, {variant}, rows {bad}"
    if rejected:
        _until_rejected(harness, told)
        context, _ = look_at(
            sinks=harness.sinks,
            storage=harness.storage,
            decisions=harness.logs,
            directory_id=harness.directory_id,
            clock=harness.clock,
        )
        named = sorted(row.values["id"] for row in find_poison(context))
        assert (named == rejected) or (fault == "unique" and len(named) == len(rejected)), f"{told}: named {named}"
        assert place.rows() == [], told
        divert_poison(context, folder / str(seed))
        rejected = named
    assert isinstance(harness.life(), Finished), told
    arrived = sorted(row["id"] for row in place.rows())
    assert arrived == [number for number in range(20) if number not in rejected], told
    return fault


def _until_rejected(harness: Harness, told: str) -> None:
    """By `RowsRejected`, or by a `TargetChanged` that tells where to look: a fault of a trigger may look like one."""
    ending = harness.life()
    assert isinstance(ending, Failed), told
    assert isinstance(ending.error, RowsRejected) or "poison show" in str(ending.error), f"{told}: {ending}"


def test_a_row_with_any_fault_is_named_diverted_and_the_job_goes_on(
    place: Place, tmp_path: Path, record_sweep: list[str]
) -> None:
    counts = Counter(play(place, seed, tmp_path) for seed in range(SEEDS))
    record_sweep.append(f"PostgreSQL, {SEEDS} random faults of rows: {dict(sorted(counts.items()))}")


@pytest.mark.soak
def test_rows_with_hundreds_of_faults_are_named_and_diverted(
    place: Place, tmp_path: Path, record_sweep: list[str]
) -> None:
    counts = Counter(play(place, seed, tmp_path) for seed in range(SEEDS, SEEDS + SOAK))
    assert set(counts) == set(FAULTS)
    record_sweep.append(f"PostgreSQL, {SOAK} random faults of rows: {dict(sorted(counts.items()))}")


@pytest.mark.skipif("ONCEWARD_SEED" not in os.environ, reason="replays the seed in ONCEWARD_SEED")
def test_replay_of_one_seed(place: Place, tmp_path: Path) -> None:
    print(play(place, int(os.environ["ONCEWARD_SEED"]), tmp_path))
