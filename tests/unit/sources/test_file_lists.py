"""Which files an epoch holds, read from the lists of a file source as Spark writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_positions import entry

from onceward.sources.file_lists import EpochFiles, files_of_epoch


def ends_at(checkpoint: Path, epoch: int, *numbers: int) -> None:
    entry(checkpoint, epoch, *(f'{{"logOffset":{number}}}' for number in numbers))


def a_list(checkpoint: Path, name: str, *files: tuple[int, str], source: int = 0) -> Path:
    path = checkpoint / "sources" / str(source) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": f"file:///in/{file}", "timestamp": 1, "batchId": number}) for number, file in files]
    path.write_text("\n".join(["v1", *lines]))
    return path


def files(checkpoint: Path, epoch: int) -> list[str]:
    (found,) = files_of_epoch(checkpoint, epoch)
    assert found.unreadable == ()
    return list(found.files)


def test_an_epoch_holds_the_lists_after_the_one_where_the_epoch_before_it_ended(tmp_path: Path) -> None:
    """Two of them where a driver died between a list and the barrier."""
    for epoch, end in enumerate((0, 2, 2)):
        ends_at(tmp_path, epoch, end)
    for number, file in enumerate("abcd"):
        a_list(tmp_path, str(number), (number, file))
    assert [files(tmp_path, epoch) for epoch in range(3)] == [["/in/a"], ["/in/b", "/in/c"], []]
    assert list(files_of_epoch(tmp_path, 2)[0].lines()) == ["it holds no file of source 0"]


@pytest.mark.parametrize("end", [8, 9, 18], ids=["taken in by a later one", "compact itself", "not by an earlier one"])
def test_a_compact_list_gives_only_the_files_of_the_number_asked_for(tmp_path: Path, end: int) -> None:
    ends_at(tmp_path, 4, end - 1)
    ends_at(tmp_path, 5, end)
    a_list(tmp_path, "9.compact", (7, "seven"), (8, "eight"), (9, "nine"))
    a_list(tmp_path, "19.compact", (8, "eight"), (9, "nine"), (18, "x"), (19, "y"))
    assert files(tmp_path, 5) == [{8: "/in/eight", 9: "/in/nine", 18: "/in/x"}[end]]


def test_of_many_files_the_first_few_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    ends_at(tmp_path, 0, 0)
    a_list(tmp_path, "0", *((0, f"day%20{number}/a%25b.json") for number in range(7)))
    (found,) = files_of_epoch(tmp_path, 0)
    lines = list(found.lines())
    assert lines[:2] == ["it holds 7 files of source 0:", "  /in/day 0/a%b.json"]
    assert lines[5:] == ["  /in/day 4/a%b.json", "  and 2 more"]


@pytest.mark.parametrize("damage", ["missing", "", "v1\n{", "v2\n", 'v1\n{"path":"x"}', "v1\n[]"])
def test_a_list_that_cannot_be_read_is_named_beside_what_the_others_hold(tmp_path: Path, damage: str) -> None:
    """It is for people to look at: what is torn keeps nobody from being shown the rest."""
    ends_at(tmp_path, 0, 1)
    a_list(tmp_path, "0", (0, "a"))
    if damage != "missing":
        a_list(tmp_path, "1").write_text(damage)
    (found,) = files_of_epoch(tmp_path, 0)
    assert found == EpochFiles(0, ("/in/a",), ("sources/0/1",))
    assert "sources/0/1 names cannot be told" in list(found.lines())[-1]


def test_other_sources_have_no_files_and_keep_their_places(tmp_path: Path) -> None:
    entry(tmp_path, 0, '{"views":{"0":1}}', "-", "17", '{"logOffset":0}', "[]")
    a_list(tmp_path, "0", (0, "a"), source=3)
    assert files_of_epoch(tmp_path, 0) == [EpochFiles(3, ("/in/a",), ())]


def test_a_source_that_gave_nothing_before_begins_with_its_first_list(tmp_path: Path) -> None:
    entry(tmp_path, 0, "-")
    ends_at(tmp_path, 1, 0)
    a_list(tmp_path, "0", (0, "a"))
    assert files(tmp_path, 1) == ["/in/a"]


def test_without_its_beginning_nothing_is_said_of_an_epoch(tmp_path: Path) -> None:
    ends_at(tmp_path, 5, 9)
    a_list(tmp_path, "9.compact", *((number, str(number)) for number in range(10)))
    assert files_of_epoch(tmp_path, 5) == []
