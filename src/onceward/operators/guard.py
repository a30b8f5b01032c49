"""Does a pipeline fit the state of its checkpoint? Pure: two topologies, and what differs, side by side.

Spark knows operators by number alone. It compares their kinds, after it has planned the next epoch, and takes two
swapped operators of one kind for each other: no error, wrong rows. So this is asked before Spark starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from onceward.errors import PipelineChanged
from onceward.operators.topology import Operator, SourceInfo, Topology

_NOTHING: Final = "-"
HINT: Final = (
    "put the pipeline back as it was. To go on with this one: `onceward savepoint take CHECKPOINT TARGET`, then "
    "`onceward savepoint restore TARGET NEW-CHECKPOINT --job FILE`, which finds operators and sources by name; or "
    "begin a new checkpoint. If a column of a key was only renamed, rename it after the operator"
)


@dataclass(frozen=True, slots=True)
class Pair:
    """What has one number in the checkpoint and in the pipeline; either may be missing."""

    number: int
    before: Operator | SourceInfo | None
    now: Operator | SourceInfo | None
    differs: bool


def refuse_misfit(before: Topology, now: Topology, *, where: str) -> None:
    """`PipelineChanged`, with both lists side by side, where state or positions would go to another than their own."""
    operators, sources = operator_pairs(before, now), source_pairs(before, now)
    for what, pairs in (("stateful operators", operators), ("sources", sources)):
        if any(pair.differs for pair in pairs):
            raise PipelineChanged(
                f"the {what} of the pipeline are not those of the checkpoint {where}:\n{side_by_side(pairs)}", hint=HINT
            )


def operator_pairs(before: Topology, now: Topology) -> list[Pair]:
    """By number, because Spark gives an operator the state of its number. What is not known of one is not compared."""
    numbers = sorted({one.number for one in (*before.operators, *now.operators)}, reverse=True)
    found = []
    for number in numbers:
        old, new = before.operator(number), now.operator(number)
        found.append(Pair(number, old, new, old is None or new is None or not fits(old, new)))
    return found


def fits(old: Operator, new: Operator) -> bool:
    """Whether the state of one can be that of the other."""
    return _agree(old.kind or None, new.kind) and _agree(old.name, new.name) and _agree(old.keys, new.keys)


def source_pairs(before: Topology, now: Topology) -> list[Pair]:
    """By place, because Spark gives a source the position of its place; by name where Spark keeps them by name."""
    if before.sources and all(one.is_named_by_spark for one in (*before.sources, *now.sources)):
        return _by_name(before.sources, now.sources)
    count = max(len(before.sources), len(now.sources))
    found = []
    for number in range(count if before.sources else 0):
        old = before.sources[number] if number < len(before.sources) else None
        new = now.sources[number] if number < len(now.sources) else None
        same = old is not None and new is not None and _agree(old.kind, new.kind) and _agree(old.name, new.name)
        found.append(Pair(number, old, new, not same))
    return found


def _by_name(before: Sequence[SourceInfo], now: Sequence[SourceInfo]) -> list[Pair]:
    """Spark lets a source go and another one come. Both at once may be one that was renamed, which Spark would read
    again from its beginning without a word."""
    old, new = {one.name: one for one in before}, {one.name: one for one in now}
    renamed = bool(old.keys() - new.keys()) and bool(new.keys() - old.keys())
    pairs = []
    for number, name in enumerate({**old, **new}):
        one, other = old.get(name), new.get(name)
        differs = renamed if one is None or other is None else not _agree(one.kind, other.kind)
        pairs.append(Pair(number, one, other, differs))
    return pairs


def _agree(one: object, other: object) -> bool:
    """What nobody has said contradicts nothing."""
    return one is None or other is None or one == other


def side_by_side(pairs: Sequence[Pair], titles: tuple[str, str] = ("checkpoint", "pipeline")) -> str:
    """A table of two columns; what differs is marked."""
    rows = [(str(pair.before or _NOTHING), str(pair.now or _NOTHING), pair.differs) for pair in pairs]
    width = max(len(titles[0]), *(len(left) for left, _, _ in rows))
    lines = [f"    {titles[0]:<{width}}   {titles[1]}"]
    lines += [f"  {'≠' if differs else ' '} {left:<{width}}   {right}" for left, right, differs in rows]
    return "\n".join(lines)


def with_former_names(now: Topology, before: Topology) -> Topology:
    """Names stay where the pipeline no longer gives any: it fits, so its operators and sources are the same."""
    called = {one.number: one.name for one in before.operators}
    operators = tuple(one if one.name else replace(one, name=called.get(one.number)) for one in now.operators)
    read_as = {one.number: one.name for one in before.sources}
    sources = tuple(one if one.name else replace(one, name=read_as.get(one.number)) for one in now.sources)
    return replace(now, operators=operators, sources=sources)
