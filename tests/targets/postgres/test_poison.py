"""Scenario 55 on the server: rows that the table rejects are found by bisection, named, and can be diverted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onceward.admin import divert_poison, find_poison
from onceward.contracts import TransactionalWriteAheadSink
from onceward.errors import RowsRejected
from onceward.recovery import look_at
from onceward.testing import Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA

from .conftest import Place
from .deliver import JOB, batch_of, deliver, values

pytestmark = pytest.mark.cluster
BAD = (3, 7, 8)


def world(place: Place, options: dict[str, Any]) -> Harness:
    sink = place.sink(**options).choose()
    sink.check(SCHEMA, output_mode="append")
    place.query(f"ALTER TABLE ~.rows ADD CONSTRAINT lucky CHECK (id NOT IN {BAD})")
    return Harness(
        SinkUnderTest(sink, place.rows, ordered=False), source=Source(ends=(12, 20), keys=3), rows_in_a_batch=4
    )


@pytest.mark.parametrize(
    "options", [{"two_phase": False}, {"mode": "upsert", "keys": ["id"]}], ids=["append", "upsert"]
)
def test_rejected_rows_stop_the_epoch_are_named_and_after_a_diversion_the_rest_arrives(
    place: Place, options: dict[str, Any], tmp_path: Path
) -> None:
    harness = world(place, options)
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, RowsRejected)
    assert "lucky" in str(ending.error)
    context, _ = look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )
    found = find_poison(context)
    assert sorted(row.values["id"] for row in found) == list(BAD)
    assert all("lucky" in row.why for row in found)
    assert place.rows() == []
    (path,) = divert_poison(context, tmp_path)
    assert len(path.read_text().splitlines()) == len(BAD)
    assert isinstance(harness.life(), Finished)
    assert sorted(row["id"] for row in place.rows()) == [number for number in range(20) if number not in BAD]
    assert place.prepared() == []


def test_in_a_replacement_a_key_that_comes_again_in_a_later_batch_is_named(place: Place) -> None:
    place.query("CREATE TABLE ~.rows (k bigint PRIMARY KEY)")
    place.query("INSERT INTO ~.rows VALUES (1), (2)")
    first, second = (batch_of(k=pa.array(keys, pa.int64())) for keys in ([1, 2], [3, 1]))
    sink = place.sink(mode="replace").choose()
    sink.check(first.schema, output_mode="complete")
    assert isinstance(sink, TransactionalWriteAheadSink)
    with pytest.raises(RowsRejected, match="rows_pkey"):
        deliver(sink, [first, second])
    assert [row.row for row in sink.find_rejected([values(sink, 0, [first, second])], JOB, 0)] == [3]
    assert place.rows() == [{"k": 1}, {"k": 2}]
