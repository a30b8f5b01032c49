"""Tables in SQLite and the file of a committer keep their form. Golden files are never edited: see `test_golden`."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from onceward.committers import FileCheckpointCommitter, SQLiteCheckpointCommitter
from onceward.contracts import Receipt, SlotValues
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, SinkName
from onceward.sinks import SQLiteSink

GOLDEN = Path(__file__).parent / "golden" / "v1"
JOB = JobIdentity(JobName("app-pv é"), Generation("abcdefgh"))
FINGERPRINT = Fingerprint("fingerprintabcde")
AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
TABLE = SinkName("sqlite:pv")
ROWS = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "app": pa.array(["maps", None], pa.string())})


def test_tables_in_sqlite_keep_their_shape(tmp_path: Path) -> None:
    path = tmp_path / "target.db"
    receipt = Receipt(JOB.name, JOB.generation, TABLE, 7, 0, FINGERPRINT)
    sink = SQLiteSink(path, table="pv", name=TABLE)
    sink.check(ROWS.schema, output_mode="append")
    sink.send_transaction([SlotValues(0, 2, receipt, lambda: iter([ROWS]))], JOB, 7, AT)
    SQLiteCheckpointCommitter(path).open(JOB, TABLE)
    golden = json.loads((GOLDEN / "tables.json").read_text())
    with closing(sqlite3.connect(path)) as database:
        shapes = {table: shape_of(database, table) for table in golden["tables"]}
        row = database.execute("SELECT * FROM onceward_receipts").fetchone()
    assert shapes == golden["tables"]
    assert list(row[:-1]) == golden["receipt"]


def shape_of(database: sqlite3.Connection, table: str) -> list[list[object]]:
    """Name, type, not null, and place in the primary key of every column."""
    query = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)'
    return [list(column) for column in database.execute(query, (table,))]


def test_committer_keeps_its_file(tmp_path: Path) -> None:
    committer = FileCheckpointCommitter(tmp_path)
    committer.open(JOB, TABLE)
    committer.commit_checkpoint(0, 7)
    golden = json.loads((GOLDEN / "names.json").read_text())["committer"]
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file.relative_to(tmp_path).as_posix() == golden["path"]
    said = json.loads(file.read_text())
    assert {key: value for key, value in said.items() if key != "committed_at"} == golden["content"]
