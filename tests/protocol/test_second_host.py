"""Scenario 73: executors on another host write to another disk. The driver notices before anything is decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest
from sink_cases import file_rows

from onceward.contracts import Guarantee, Handle
from onceward.errors import StagedRowsMissing, TargetUnavailable
from onceward.sinks.files import FileSink
from onceward.testing import (
    Behaviour,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    Harness,
    MemoryStorage,
    MemoryTarget,
    SecondHost,
    SinkUnderTest,
    Source,
)
from onceward.testing.engine import SCHEMA

SOURCE = Source(ends=(4, 8), keys=4)
GUARANTEES = [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE]


def subject(kind: type[FakeTwoPhaseSink | FakeTransactionalSink | FakeWriteAheadSink]) -> SinkUnderTest:
    target = MemoryTarget()
    return SinkUnderTest(kind(target), lambda: target.rows)


def expect_refused(harness: Harness, behaviour: Behaviour, *words: str) -> None:
    """Nothing is decided, nothing is visible, and what was staged beside the driver is gone."""
    ending = harness.life(behaviour=behaviour)
    assert isinstance(ending, Failed), ending
    assert isinstance(ending.error, StagedRowsMissing), ending.error
    assert ending.error.epoch == 0
    for word in (*words, "staged on"):
        assert word in str(ending.error)
    assert harness.logs.decided() == -1
    assert all(subject.read() == [] for subject in harness.subjects)
    assert [line for line in harness.leftovers() if "manifests/" not in line] == []


@pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("slots", [{0, 1}, {1}], ids=["all-slots", "one-slot"])
@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda guarantee: guarantee.value)
def test_what_another_host_keeps_to_itself_fails_the_epoch_before_the_decision(
    kind: type[FakeTwoPhaseSink | FakeTransactionalSink], slots: set[int], guarantee: Guarantee
) -> None:
    harness = Harness(subject(kind), source=SOURCE, guarantee=guarantee)
    elsewhere = SecondHost.without(harness.sinks)
    expect_refused(harness, Behaviour(runs_on=elsewhere.some(lambda epoch, slot: slot in slots)))
    if guarantee is not Guarantee.AT_MOST_ONCE:
        harness.drain()
        assert harness.problems() == []


def test_a_plain_write_ahead_sink_is_no_different() -> None:
    harness = Harness(subject(FakeWriteAheadSink), source=SOURCE, guarantee=Guarantee.AT_LEAST_ONCE)
    expect_refused(harness, Behaviour(runs_on=SecondHost(MemoryStorage()).some(lambda epoch, slot: True)), "wal/0/")
    harness.drain()
    assert harness.problems() == []


def test_files_on_another_disk_are_missed_by_their_path(tmp_path: Path) -> None:
    here, there = (FileSink(tmp_path / place, format="jsonl", name="files") for place in ("here", "there"))
    here.check(SCHEMA, output_mode="append")
    harness = Harness(SinkUnderTest(here, lambda: file_rows(here.path), ordered=False), source=SOURCE)
    elsewhere = SecondHost(sinks={here.name: there})
    expect_refused(
        harness, Behaviour(runs_on=elsewhere.some(lambda epoch, slot: slot == 0)), str(here.path), "not there"
    )
    harness.drain()
    assert harness.problems() == []


def test_a_file_that_is_cut_short_is_not_whole(tmp_path: Path) -> None:
    class CutShort(FileSink):
        """As a file system does that tells a reader on another host an old size."""

        cut = True

        def verify(self, handles: Sequence[Handle]) -> Sequence[str | None]:
            if self.cut:
                for path in (self.path / ".onceward").glob("ow1_*"):
                    path.write_bytes(path.read_bytes()[:-1])
            return super().verify(handles)

    sink = CutShort(tmp_path / "files", format="jsonl")
    sink.check(SCHEMA, output_mode="append")
    harness = Harness(SinkUnderTest(sink, lambda: file_rows(sink.path), ordered=False), source=SOURCE)
    expect_refused(harness, Behaviour(), str(sink.path), "bytes")
    sink.cut = False
    harness.drain()
    assert harness.problems() == []


@dataclass(slots=True)
class ShortSighted(MemoryStorage):
    """Shows segments without their last byte, as a network file system may that has not heard of it yet."""

    shortened: bool = True

    def open(self, path: str) -> BinaryIO:
        file = MemoryStorage.open(self, path)
        if self.shortened:
            file.truncate(len(self.files[path]) - 1)
        return file


def test_a_segment_that_is_cut_short_is_not_whole() -> None:
    storage = ShortSighted()
    harness = Harness(subject(FakeTransactionalSink), source=SOURCE, storage=storage)
    expect_refused(harness, Behaviour(), "wal/0/", "bytes")
    storage.shortened = False
    harness.drain()
    assert harness.problems() == []


def test_a_target_that_cannot_be_asked_is_no_target_that_has_it() -> None:
    class Dumb(FakeTwoPhaseSink):
        def verify(self, handles: Sequence[Handle]) -> Sequence[str | None]:
            raise ConnectionError("the line is cut")

    harness = Harness(subject(Dumb), source=SOURCE)
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetUnavailable)
    assert harness.logs.decided() == -1
    assert "the line is cut" in str(ending.error)


def test_a_host_that_shares_everything_is_as_good_as_the_driver() -> None:
    """Else the tests above would pass whatever the other host does."""
    harness = Harness(subject(FakeTwoPhaseSink), subject(FakeTransactionalSink), source=SOURCE)
    harness.drain(Behaviour(runs_on=SecondHost().some(lambda epoch, slot: True)))
    assert harness.problems() == []
