"""Which changes of a pipeline fit the state of its checkpoint, and which are refused: a table, without Spark."""

from __future__ import annotations

import pytest

from onceward.errors import ConfigurationError, PipelineChanged
from onceward.operators import (
    Column,
    Operator,
    SourceInfo,
    Topology,
    checked_names,
    refuse_misfit,
    with_former_names,
    with_names,
)

USER, ITEM, LONG_USER = (Column("user", "string"),), (Column("item", "string"),), (Column("user", "long"),)


def dedupe(number: int, keys: tuple[Column, ...] | None = USER, name: str | None = None) -> Operator:
    return Operator(number, "dedupe", name, keys)


def count(number: int, name: str | None = None) -> Operator:
    return Operator(number, "stateStoreSave", name, ITEM)


def of(*operators: Operator) -> Topology:
    return Topology(operators)


def reads(*sources: SourceInfo) -> Topology:
    return Topology(sources=sources)


def files(number: int, name: str | None = None, kind: str | None = "FileSource", *, spark: bool = False) -> SourceInfo:
    return SourceInfo(number, kind, name, spark)


FITTING = {
    "the same": (of(dedupe(1), count(0)), of(dedupe(1), count(0))),
    "names are given for the first time": (of(dedupe(0)), of(dedupe(0, name="a"))),
    "names are no longer given": (of(dedupe(0, name="a")), of(dedupe(0))),
    "a key that nobody knows": (of(dedupe(0, None)), of(dedupe(0))),
    "a kind that nobody can read any more": (of(Operator(0, "")), of(dedupe(0))),
    "nothing with state": (Topology(), Topology()),
    "two alike without names, maybe swapped": (of(dedupe(1), dedupe(0)), of(dedupe(1), dedupe(0))),
    "a source named for the first time": (reads(files(0)), reads(files(0, "views"))),
    "a source of unknown kind": (reads(files(0, kind=None)), reads(files(0))),
    "a checkpoint that says nothing of its sources": (reads(), reads(files(0))),
    "sources that Spark names, in another order": (
        reads(files(0, "a", spark=True), files(1, "b", spark=True)),
        reads(files(0, "b", spark=True), files(1, "a", spark=True)),
    ),
    "a source more, which Spark names": (
        reads(files(0, "a", spark=True)),
        reads(files(0, "b", spark=True), files(1, "a", spark=True)),
    ),
}
MISFITS = {
    "two swapped, by their keys": (of(dedupe(1, USER), dedupe(0, ITEM)), of(dedupe(1, ITEM), dedupe(0, USER))),
    "two alike swapped, by their names": (
        of(dedupe(1, USER, "a"), dedupe(0, USER, "b")),
        of(dedupe(1, USER, "b"), dedupe(0, USER, "a")),
    ),
    "another kind": (of(dedupe(0)), of(count(0))),
    "another kind on the same key": (of(dedupe(0, ITEM)), of(count(0))),
    "one more before": (of(count(0)), of(dedupe(1), count(0))),
    "one more after": (of(dedupe(0)), of(dedupe(1), count(0))),
    "one less": (of(dedupe(1), count(0)), of(count(0))),
    "all gone": (of(dedupe(0)), of()),
    "the first with state": (of(), of(dedupe(0))),
    "another key": (of(dedupe(0, USER)), of(dedupe(0, ITEM))),
    "another type of key": (of(dedupe(0, USER)), of(dedupe(0, LONG_USER))),
    "another name": (of(dedupe(0, USER, "a")), of(dedupe(0, USER, "b"))),
    "one source more": (reads(files(0)), reads(files(0), files(1))),
    "one source less": (reads(files(0), files(1)), reads(files(0))),
    "another kind of source": (reads(files(0)), reads(files(0, kind="kafka"))),
    "sources swapped, by name": (
        reads(files(0, "a"), files(1, "b")),
        reads(files(0, "b"), files(1, "a")),
    ),
    "a source that Spark names, renamed": (
        reads(files(0, "a", spark=True), files(1, "b", spark=True)),
        reads(files(0, "a", spark=True), files(1, "c", spark=True)),
    ),
}


@pytest.mark.parametrize("case", FITTING)
def test_it_fits(case: str) -> None:
    before, now = FITTING[case]
    refuse_misfit(before, now, where="c")


@pytest.mark.parametrize("case", MISFITS)
def test_it_does_not_fit(case: str) -> None:
    before, now = MISFITS[case]
    with pytest.raises(PipelineChanged, match="of the pipeline are not those of the checkpoint c"):
        refuse_misfit(before, now, where="c")


def test_the_refusal_shows_both_lists_side_by_side_and_the_way_out() -> None:
    with pytest.raises(PipelineChanged) as refused:
        refuse_misfit(of(dedupe(1, USER, "by user"), count(0)), of(count(0)), where="/c")
    assert refused.value.message.splitlines() == [
        "the stateful operators of the pipeline are not those of the checkpoint /c:",
        "    checkpoint                          pipeline",
        "  ≠ dedupe 'by user' on (user string)   -",
        "    stateStoreSave on (item string)     stateStoreSave on (item string)",
    ]
    assert "onceward savepoint restore TARGET NEW-CHECKPOINT --job FILE" in (refused.value.hint or "")


def test_names_stay_where_the_pipeline_gives_none() -> None:
    before = Topology((dedupe(1, name="a"), dedupe(0, name="b")), (files(0, "views"),), ("old",))
    now = Topology((dedupe(1), dedupe(0, name="b")), (files(0),), ("new",))
    assert with_former_names(now, before) == Topology(before.operators, before.sources, ("new",))


def test_names_are_given_in_the_order_data_flows() -> None:
    found = Topology((dedupe(1), count(0)), (files(0), files(1)))
    named = with_names(found, operators=["first", "then"], sources=["left", "right"])
    assert [(one.number, one.name) for one in named.operators] == [(1, "first"), (0, "then")]
    assert [one.name for one in named.sources] == ["left", "right"]
    assert with_names(found) == found


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], []])
def test_too_few_names_or_too_many_are_refused_with_the_list(names: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"has 2 stateful operators: dedupe on \(user string\); state"):
        with_names(of(dedupe(1), count(0)), operators=names)


def test_names_that_contradict_those_of_the_pipeline_are_refused() -> None:
    found = reads(files(0, "a", spark=True))
    assert with_names(found, sources=["a"]) == found
    with pytest.raises(ConfigurationError, match="the pipeline itself names them"):
        with_names(found, sources=["b"])


@pytest.mark.parametrize("names", ["ab", ["a", "a"], [""], ["a/b"], [1], {"a": 1}])
def test_what_is_no_list_of_names_is_refused(names: object) -> None:
    with pytest.raises(ConfigurationError):
        checked_names("operators", names)
