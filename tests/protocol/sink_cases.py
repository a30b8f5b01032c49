"""The sinks that the protocol's tests run with, each with the way to read its target back."""

import json
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from onceward.committers import FileCheckpointCommitter
from onceward.sinks.files import FileSink
from onceward.sinks.sqlite import SQLiteSink
from onceward.sinks.stdout import StdoutSink
from onceward.testing import (
    FakeSlotwiseSink,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    MemoryTarget,
    SinkUnderTest,
    Source,
)
from onceward.testing.engine import SCHEMA

Rows = list[dict[str, object]]

SMALL = Source(ends=(2, 3), keys=2)
"""Two slots in epoch 0, one in epoch 1, a row in each."""


def fake(kind: Callable[..., object], name: str | None = None) -> SinkUnderTest:
    target = MemoryTarget()
    sink = kind(target) if name is None else kind(target, name=name)
    return SinkUnderTest(sink, lambda: target.rows)


def file_rows(folder: Path) -> Rows:
    files = sorted(folder.rglob("part-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def files(folder: Path, **options: Any) -> SinkUnderTest:
    sink = FileSink(folder / "files", format="jsonl", **options)
    sink.check(SCHEMA, output_mode="append")
    return SinkUnderTest(sink, lambda: file_rows(folder / "files"), ordered=False)


def table_rows(path: Path, table: str) -> Rows:
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(f'SELECT * FROM "{table}" ORDER BY rowid')]


def sqlite(folder: Path) -> SinkUnderTest:
    sink = SQLiteSink(folder / "rows.db", table="rows")
    sink.check(SCHEMA, output_mode="append")
    return SinkUnderTest(sink, lambda: table_rows(folder / "rows.db", "rows"))


class Screen(StringIO):
    """A terminal that outlives the process which writes to it."""

    def rows(self) -> Rows:
        lines = [re.fullmatch(r"epoch \d+ (\{.*\})", line) for line in self.getvalue().splitlines()]
        return [json.loads(match[1]) for match in lines if match]


def stdout(folder: Path) -> SinkUnderTest:
    screen = Screen()
    sys.stdout = screen
    return SinkUnderTest(StdoutSink(committer=FileCheckpointCommitter(folder / "sent")), screen.rows, ordered=False)


@dataclass(frozen=True)
class SinkCase:
    """One set of sinks, made anew in an empty folder for every history."""

    name: str
    make: Callable[[Path], tuple[SinkUnderTest, ...]]
    on_disk: bool = True
    source: Source = SMALL


SINK_CASES = (
    SinkCase("fake two-phase", lambda folder: (fake(FakeTwoPhaseSink),), on_disk=False),
    SinkCase("fake transactional", lambda folder: (fake(FakeTransactionalSink),), on_disk=False),
    SinkCase("fake slotwise", lambda folder: (fake(FakeSlotwiseSink),), on_disk=False),
    SinkCase("fake plain", lambda folder: (fake(FakeWriteAheadSink),), on_disk=False),
    SinkCase("FileSink", lambda folder: (files(folder),)),
    SinkCase(
        "FileSink with two files a slot",
        lambda folder: (files(folder, max_rows_per_file=1),),
        source=Source(ends=(4,), keys=2),
    ),
    SinkCase("SQLiteSink", lambda folder: (sqlite(folder),)),
    SinkCase("StdoutSink", lambda folder: (stdout(folder),)),
    SinkCase("FileSink and SQLiteSink", lambda folder: (files(folder), sqlite(folder))),
)


@contextmanager
def same_stdout() -> Iterator[None]:
    before = sys.stdout
    try:
        yield
    finally:
        sys.stdout = before
