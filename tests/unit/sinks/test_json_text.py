"""JSON of Arrow columns: as a slow second opinion reads it, whatever the type, and never the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from json_fuzz import try_one

from onceward.sinks.json_text import json_values, without_json_form

FUZZ = Path(__file__).with_name("json_fuzz.py")
COLUMNS = 1_500
SOAK = 60_000


def fuzz(first: int, count: int) -> int:
    """How many values were compared; what ends the process is a failure like any other."""
    ran = subprocess.run(
        [sys.executable, str(FUZZ), str(first), str(first + count)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert ran.returncode == 0, f"seeds {first} to {first + count}: {ran.stderr[-2000:]}"
    return int(ran.stdout)


def test_a_slice_at_an_empty_map_with_a_null_type_in_it_is_an_empty_object() -> None:
    """In a process of its own: Arrow ended it."""
    code = (
        "import pyarrow as pa\n"
        "from onceward.sinks.json_text import json_values\n"
        "kind = pa.map_(pa.string(), pa.struct([('x', pa.null()), ('y', pa.int64())]))\n"
        "column = pa.array([[('a', {'x': None, 'y': 1})], [], None], kind)\n"
        "print(json_values(column.slice(1)).to_pylist())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (ran.stdout.strip(), ran.returncode) == ("['{}', None]", 0), ran.stderr


def test_columns_of_random_types_are_what_a_slow_second_opinion_reads(record_sweep: list[str]) -> None:
    compared = fuzz(0, COLUMNS)
    assert compared > COLUMNS
    record_sweep.append(f"JSON encoder: {COLUMNS} columns of random types, {compared} values")


@pytest.mark.soak
def test_many_columns_of_random_types(record_sweep: list[str]) -> None:
    compared = sum(fuzz(first, 5_000) for first in range(COLUMNS, COLUMNS + SOAK, 5_000))
    record_sweep.append(f"JSON encoder, soak: {SOAK} columns of random types, {compared} values")


@pytest.mark.skipif("ONCEWARD_SEED" not in os.environ, reason="replays the seed in ONCEWARD_SEED")
def test_replay_of_one_seed() -> None:
    try_one(int(os.environ["ONCEWARD_SEED"]))


def test_a_struct_with_two_fields_of_one_name_has_no_form() -> None:
    """A reader would keep one of them."""
    kind = pa.struct([pa.field("a", pa.int64()), pa.field("a", pa.string())])
    with pytest.raises(TypeError, match="two fields 'a'"):
        json_values(pa.nulls(1, kind))
    assert "column 's': " in str(without_json_form(pa.schema([("s", kind)])))
