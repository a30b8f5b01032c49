"""Every sink passes the suite for its template: the fakes, so that they are honest, and the real ones."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sink_cases import Screen, file_rows, same_stdout, table_rows

from onceward.committers import FileCheckpointCommitter
from onceward.sinks.files import FileSink
from onceward.sinks.sqlite import SQLiteSink
from onceward.sinks.stdout import StdoutSink
from onceward.testing import FakeSlotwiseSink, FakeTransactionalSink, FakeTwoPhaseSink, FakeWriteAheadSink, MemoryTarget
from onceward.testing.conformance import TransactionalConformance, TwoPhaseConformance, WriteAheadConformance
from onceward.testing.engine import SCHEMA

Rows = list[dict[str, Any]]


class InMemory:
    @pytest.fixture(autouse=True)
    def _target(self) -> None:
        self.target = MemoryTarget()

    def read_rows(self) -> Rows:
        return self.target.rows


class TestFakeTwoPhaseSink(InMemory, TwoPhaseConformance):
    def make_sink(self, name: str = "sink") -> FakeTwoPhaseSink:
        return FakeTwoPhaseSink(self.target, name=name)


class TestFakeTransactionalSink(InMemory, TransactionalConformance):
    def make_sink(self, name: str = "sink") -> FakeTransactionalSink:
        return FakeTransactionalSink(self.target, name=name)


class TestFakeSlotwiseSink(InMemory, TransactionalConformance):
    def make_sink(self, name: str = "sink") -> FakeSlotwiseSink:
        return FakeSlotwiseSink(self.target, name=name)


class TestFakeWriteAheadSink(InMemory, WriteAheadConformance):
    def make_sink(self, name: str = "sink") -> FakeWriteAheadSink:
        return FakeWriteAheadSink(self.target, name=name)


class OnDisk:
    @pytest.fixture(autouse=True)
    def _folder(self, workshop: Path) -> None:
        self.folder = workshop


class TestFileSink(OnDisk, TwoPhaseConformance):
    options: ClassVar[dict[str, Any]] = {}

    def make_sink(self, name: str = "sink") -> FileSink:
        sink = FileSink(self.folder / "files", format="jsonl", name=name, **self.options)
        sink.check(SCHEMA, output_mode="append")
        return sink

    def read_rows(self) -> Rows:
        return file_rows(self.folder / "files")


class TestFileSinkWithManyFilesASlot(TestFileSink):
    options: ClassVar[dict[str, Any]] = {"max_rows_per_file": 1}


class TestSQLiteSink(OnDisk, TransactionalConformance):
    def make_sink(self, name: str = "sink") -> SQLiteSink:
        sink = SQLiteSink(self.folder / "rows.db", table="rows", name=name)
        sink.check(SCHEMA, output_mode="append")
        return sink

    def read_rows(self) -> Rows:
        return table_rows(self.folder / "rows.db", "rows")


class TestStdoutSink(OnDisk, WriteAheadConformance):
    @pytest.fixture(autouse=True)
    def _screen(self) -> Iterator[None]:
        self.screen = Screen()
        with same_stdout():
            yield

    def make_sink(self, name: str = "sink") -> StdoutSink:
        sys.stdout = self.screen
        return StdoutSink(name=name, committer=FileCheckpointCommitter(self.folder / "sent"))

    def read_rows(self) -> Rows:
        return self.screen.rows()
