"""Which state becomes whose in a restore: a table, without Spark."""

from __future__ import annotations

import pytest

from onceward.errors import ConfigurationError, PipelineChanged
from onceward.operators import Column, Operator, SourceInfo, Topology, plan_mapping

USER, ITEM = (Column("user", "string"),), (Column("item", "string"),)


def dedupe(number: int, name: str | None = None, keys: tuple[Column, ...] | None = USER) -> Operator:
    return Operator(number, "dedupe", name, keys)


def count(number: int, name: str | None = None) -> Operator:
    return Operator(number, "stateStoreSave", name, ITEM)


def of(*operators: Operator) -> Topology:
    return Topology(operators)


def files(number: int, name: str | None = None, kind: str | None = "FileSource", *, spark: bool = False) -> SourceInfo:
    return SourceInfo(number, kind, name, spark)


def reads(*sources: SourceInfo) -> Topology:
    return Topology(sources=sources)


Numbers = list[tuple[int | None, int | None]]
MAPPED: dict[str, tuple[Topology, Topology, Numbers]] = {
    "nothing changed": (of(dedupe(1), count(0)), of(dedupe(1), count(0)), [(1, 1), (0, 0)]),
    "moved, by name": (of(dedupe(0, "d")), of(dedupe(1, "d"), count(0, "c")), [(0, 1), (None, 0)]),
    "moved, by kind and key": (of(dedupe(0)), of(dedupe(1), count(0)), [(0, 1), (None, 0)]),
    "one more before": (of(count(0)), of(dedupe(1), count(0)), [(None, 1), (0, 0)]),
    "swapped, by name": (
        of(dedupe(1, "a"), dedupe(0, "b")),
        of(dedupe(1, "b"), dedupe(0, "a")),
        [(0, 1), (1, 0)],
    ),
    "swapped, by key": (
        of(dedupe(1, keys=USER), dedupe(0, keys=ITEM)),
        of(dedupe(1, keys=ITEM), dedupe(0, keys=USER)),
        [(0, 1), (1, 0)],
    ),
    "alike, without names, in the same order": (
        of(dedupe(1), dedupe(0)),
        of(dedupe(1, "a"), dedupe(0, "b")),
        [(1, 1), (0, 0)],
    ),
    "one named, the other by what is left": (
        of(dedupe(1, "a"), dedupe(0)),
        of(dedupe(2, "a"), count(1), dedupe(0)),
        [(1, 2), (None, 1), (0, 0)],
    ),
    "a key that nobody knows": (of(dedupe(0, keys=None)), of(dedupe(0)), [(0, 0)]),
}


def numbers(old: Topology, new: Topology, **options: bool) -> Numbers:
    found = plan_mapping(old, new, **options).operators
    return [(one.before and one.before.number, one.now and one.now.number) for one in found]


@pytest.mark.parametrize("case", MAPPED)
def test_state_goes_to_its_operator(case: str) -> None:
    old, new, expected = MAPPED[case]
    assert numbers(old, new) == expected


REMOVED: dict[str, tuple[Topology, Topology, Numbers]] = {
    "one less": (of(dedupe(1, "d"), count(0, "c")), of(count(0, "c")), [(0, 0), (1, None)]),
    "another name is another operator": (of(dedupe(0, "a")), of(dedupe(0, "b")), [(None, 0), (0, None)]),
    "another key is another operator": (of(dedupe(0)), of(dedupe(0, keys=ITEM)), [(None, 0), (0, None)]),
    "another kind is another operator": (of(dedupe(0)), of(count(0)), [(None, 0), (0, None)]),
}


@pytest.mark.parametrize("case", REMOVED)
def test_state_that_nobody_takes_stops_a_restore_unless_it_may_be_left(case: str) -> None:
    old, new, expected = REMOVED[case]
    with pytest.raises(PipelineChanged, match="have no place in the pipeline") as refused:
        plan_mapping(old, new)
    assert "--allow-non-restored-state" in (refused.value.hint or "")
    assert numbers(old, new, allow_non_restored=True) == expected


REFUSED = {
    "of one name, of another kind": (of(dedupe(0, "x")), of(count(0, "x")), "differ in what they are"),
    "of one name, of another key": (of(dedupe(0, "x")), of(dedupe(0, "x", ITEM)), "differ in what they are"),
    "two alike, one more": (of(dedupe(0)), of(dedupe(1), dedupe(0)), "cannot be told apart"),
    "two alike, one less": (of(dedupe(1), dedupe(0)), of(dedupe(0)), "cannot be told apart"),
    "two alike among others that moved": (
        of(dedupe(1), dedupe(0)),
        of(dedupe(2), count(1), dedupe(0)),
        "cannot be told apart",
    ),
    "Spark's names for sources come": (reads(files(0)), reads(files(0, "a", spark=True)), "does not name"),
    "two sources alike, one more": (reads(files(0)), reads(files(0), files(1)), "cannot be told apart"),
    "a source of one name, of another kind": (
        reads(files(0, "a")),
        reads(files(0, "a", "kafka")),
        "differ in what they are",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_be_meant_otherwise_is_refused_even_if_state_may_be_left(case: str) -> None:
    old, new, why = REFUSED[case]
    with pytest.raises(PipelineChanged, match=why):
        plan_mapping(old, new, allow_non_restored=True)


def test_a_renamed_operator_source_or_sink_is_found_by_its_new_name() -> None:
    old = Topology((dedupe(0, "a"),), (files(0, "s"),), ("out",))
    new = Topology((dedupe(0, "b"),), (files(0, "t"),), ("to",))
    found = plan_mapping(old, new, renames={"a": "b", "s": "t", "out": "to"})
    assert found.changes_nothing
    assert found.described() == []
    assert found.topology == new
    with pytest.raises(ConfigurationError, match="nothing in the savepoint has that name") as refused:
        plan_mapping(old, new, renames={"x": "b"})
    assert refused.value.hint == "its names are: a, out, s"


def test_a_sink_that_is_gone_stops_a_restore_unless_it_may_be_left() -> None:
    old, new = Topology(sinks=("a", "b")), Topology(sinks=("b", "c"))
    with pytest.raises(PipelineChanged, match=r"no longer has the sinks \['a'\]"):
        plan_mapping(old, new)
    plan_mapping(old, new, allow_non_restored=True)


def test_sources_go_by_name_by_kind_and_by_place() -> None:
    def places(old: Topology, new: Topology, **options: bool) -> Numbers:
        found = plan_mapping(old, new, **options).sources
        return [(one.before and one.before.number, one.now and one.now.number) for one in found]

    assert places(reads(files(0, "a"), files(1, "b")), reads(files(0, "b"), files(1, "a"))) == [(1, 0), (0, 1)]
    assert places(reads(files(0)), reads(files(0, kind="kafka"), files(1))) == [(None, 0), (0, 1)]
    assert places(reads(files(0), files(1)), reads(files(0, "a"), files(1, "b"))) == [(0, 0), (1, 1)]
    with pytest.raises(PipelineChanged, match="sources of the savepoint have no place"):
        places(reads(files(0, "a")), reads(files(0, "b")))
    gone = reads(files(0, "a"), files(1, "b"))
    with pytest.raises(PipelineChanged, match="sources of the savepoint have no place"):
        places(gone, reads(files(0, "b")))
    assert places(gone, reads(files(0, "b")), allow_non_restored=True) == [(1, 0), (0, None)]


def test_it_says_what_does_not_simply_go_on() -> None:
    old = Topology((dedupe(0, "d"), count(1, "gone")), (files(0, "a"),))
    new = Topology((dedupe(1, "d"), count(0, "c")), (files(0, "a"), files(1, "b")))
    assert plan_mapping(old, new, allow_non_restored=True).described() == [
        "operator dedupe 'd' on (user string) goes on with what was number 0",
        "operator stateStoreSave 'c' on (item string) is new: it starts with no state",
        "operator stateStoreSave 'gone' on (item string) is left behind",
        "source FileSource 'b' is new: it is read from its beginning",
    ]


def test_what_goes_on_keeps_its_name_where_the_pipeline_gives_none() -> None:
    old, new = Topology((dedupe(0, "d"),), (files(0, "s"),)), Topology((dedupe(1), count(0)), (files(0),))
    found = plan_mapping(old, new).topology
    assert [one.name for one in found.operators] == ["d", None]
    assert [one.name for one in found.sources] == ["s"]
