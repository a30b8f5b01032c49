"""Where epochs begin and end in Kafka, read from offset logs as Spark writes them."""

from pathlib import Path

import pytest

from onceward.sources import KafkaSource
from onceward.sources.positions import OffsetRange, offset_ranges, positions, shown

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def entry(checkpoint: Path, epoch: int, *sources: str) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(epoch)).write_text("\n".join(["v1", METADATA, *sources]))


def test_an_epoch_reads_from_where_the_one_before_it_ended(tmp_path: Path) -> None:
    entry(tmp_path, 0, '{"views":{"0":10,"1":7}}')
    entry(tmp_path, 1, '{"views":{"1":9,"0":60000}}')
    assert offset_ranges(tmp_path, 1) == [OffsetRange("views", 0, 10, 60000), OffsetRange("views", 1, 7, 9)]
    assert str(offset_ranges(tmp_path, 1)[1]) == "views-1: 7 to 8 (2 records)"


def test_a_partition_that_is_new_has_an_end_and_no_beginning_yet(tmp_path: Path) -> None:
    entry(tmp_path, 0, '{"views":{"0":10}}')
    entry(tmp_path, 1, '{"views":{"0":12,"1":3}}')
    assert offset_ranges(tmp_path, 1) == [OffsetRange("views", 0, 10, 12)]
    assert positions(tmp_path, 1) == {("views", 0): 12, ("views", 1): 3}


def test_several_sources_are_told_apart_from_those_that_are_not_kafka(tmp_path: Path) -> None:
    entry(tmp_path, 3, '{"logOffset":4}', '{"a":{"0":1}}', "-", '{"b.c":{"2":5}}', "17", "[]")
    assert positions(tmp_path, 3) == {("a", 0): 1, ("b.c", 2): 5}
    assert shown(positions(tmp_path, 3)) == "a (0, 1); b.c (2, 5)"


def test_epochs_without_an_entry_have_no_offsets(tmp_path: Path) -> None:
    entry(tmp_path, 5, '{"views":{"0":10}}')
    assert positions(tmp_path, 4) == {}
    assert offset_ranges(tmp_path, 5) == []
    assert positions(tmp_path, -1) == {}
    assert shown({}) == ""


def test_a_partition_that_two_sources_read_is_left_out(tmp_path: Path) -> None:
    """They may be different brokers."""
    entry(tmp_path, 0, '{"views":{"0":5,"1":7}}', '{"views":{"0":900}}')
    assert positions(tmp_path, 0) == {("views", 1): 7}


@pytest.mark.parametrize(
    ("options", "looked_at"),
    [({"topics": "views"}, {("views", 0)}), ({"pattern": "us.*"}, {("users", 0)}), ({"pattern": "(?<x"}, None)],
    ids=["topics", "pattern", "Java's pattern"],
)
def test_a_source_looks_only_for_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], looked_at: set[tuple[str, int]] | None
) -> None:
    """The job reads from other brokers, too."""
    entry(tmp_path, 0, '{"views":{"0":5}}', '{"users":{"0":9}}')
    entry(tmp_path, 1, '{"views":{"0":5}}', '{"users":{"0":9}}')
    asked: set[tuple[str, int]] = set()

    class Nothing:
        def __init__(self, *_: object) -> None: ...

        def kept(self, places: dict[tuple[str, int], int]) -> dict[tuple[str, int], OffsetRange]:
            asked.update(places)
            return {}

    monkeypatch.setattr("onceward.sources.kafka.Brokers", Nothing)
    assert KafkaSource("localhost:9092", **options).lost(tmp_path) == []
    assert asked == (looked_at or {("views", 0), ("users", 0)})
