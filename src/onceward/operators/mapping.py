"""Which state and which position becomes whose, when a savepoint is restored for a changed pipeline. Pure.

By name first. What has no name on one side is matched by kind and key where only one can be meant. Two lists that agree
in their order are taken as they stand: nothing can tell more. Anything else is refused, with both lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from onceward.errors import ConfigurationError, PipelineChanged
from onceward.operators.guard import Pair, fits, side_by_side
from onceward.operators.topology import Operator, SourceInfo, Topology

T = TypeVar("T", bound=Operator | SourceInfo)
_TITLES: Final = ("savepoint", "pipeline")


@dataclass(frozen=True, slots=True)
class Match(Generic[T]):
    """`before` goes on as `now`. Without `now` it is left behind, without `before` it starts empty."""

    before: T | None
    now: T | None


@dataclass(frozen=True, slots=True)
class StateMapping:
    """What becomes of every operator and source of the savepoint, and where those of the pipeline begin."""

    topology: Topology
    operators: tuple[Match[Operator], ...]
    sources: tuple[Match[SourceInfo], ...]

    @property
    def changes_nothing(self) -> bool:
        """Whether every operator and source keeps its number, and its name with Spark."""
        return all(_stays(one) for one in self.operators) and all(_stays(one) for one in self.sources)

    def described(self) -> list[str]:
        """A sentence for each that does not simply go on."""
        found = [_sentence("operator", one, "starts with no state", "is left behind") for one in self.operators]
        found += [_sentence("source", one, "is read from its beginning", "is left behind") for one in self.sources]
        return [one for one in found if one is not None]


def plan_mapping(
    old: Topology, new: Topology, *, allow_non_restored: bool = False, renames: Mapping[str, str] | None = None
) -> StateMapping:
    """The mapping, or `PipelineChanged`. `renames` are names of the savepoint, and what the pipeline calls them now."""
    given, old = old, _renamed(old, renames or {})
    _refuse_two_ways(old, new)
    operators = _matched(old.operators, new.operators, fits, "stateful operators")
    sources = _matched(old.sources, new.sources, _source_fits, "sources") if old.sources else ()
    if not allow_non_restored:
        _refuse_left_behind("stateful operators", operators)
        _refuse_left_behind("sources", sources)
        if gone := sorted(set(old.sinks) - set(new.sinks)):
            raise PipelineChanged(
                f"the job no longer has the sinks {gone} of the savepoint; it has {sorted(new.sinks)}",
                hint="add them; or, if they are to get nothing more, give --allow-non-restored-state; one that was "
                "renamed: --rename OLD=NEW",
            )
    named = replace(new, operators=_called(new.operators, operators), sources=_called(new.sources, sources))
    return StateMapping(named, _as_given(operators, given.operators), _as_given(sources, given.sources))


def _called(now: tuple[T, ...], found: Sequence[Match[T]]) -> tuple[T, ...]:
    """What goes on keeps its name where the pipeline gives none."""
    names = {one.now.number: one.before.name for one in found if one.now is not None and one.before is not None}
    return tuple(one if one.name is not None else replace(one, name=names.get(one.number)) for one in now)


def _as_given(found: tuple[Match[T], ...], given: Sequence[T]) -> tuple[Match[T], ...]:
    """With the names of the savepoint: under these its files are found."""
    by_number = {one.number: one for one in given}
    return tuple(Match(by_number[one.before.number] if one.before else None, one.now) for one in found)


def _renamed(old: Topology, renames: Mapping[str, str]) -> Topology:
    known = {one.name for one in old.operators} | {one.name for one in old.sources} | set(old.sinks)
    for name in renames:
        if name not in known:
            raise ConfigurationError(
                f"--rename {name}=...: nothing in the savepoint has that name",
                hint=f"its names are: {', '.join(sorted(one for one in known if one)) or 'none'}",
            )
    return Topology(
        tuple(replace(one, name=renames.get(one.name or "", one.name)) for one in old.operators),
        tuple(replace(one, name=renames.get(one.name or "", one.name)) for one in old.sources),
        tuple(renames.get(one, one) for one in old.sinks),
    )


def _refuse_two_ways(old: Topology, new: Topology) -> None:
    """Spark keeps positions by place or by name; a checkpoint does not change from one to the other."""
    if old.sources and new.sources and old.sources[0].is_named_by_spark != new.sources[0].is_named_by_spark:
        which = "names" if old.sources[0].is_named_by_spark else "does not name"
        raise PipelineChanged(
            f"the savepoint is of a query that {which} its sources by readStream.name(...), and the pipeline is not so",
            hint="keep it as it was; sources=[...] of the job names sources without Spark's help",
        )


def _matched(old: Sequence[T], new: Sequence[T], fitting: Callable[[T, T], bool], what: str) -> tuple[Match[T], ...]:
    by_name = {one.name: one for one in old if one.name is not None}
    named = [(by_name[one.name], one) for one in new if one.name in by_name]
    for before, now in named:
        if not fitting(before, now):
            _refuse(what, "of one name differ in what they are", old, new, {before.number}, {now.number})
    taken_old, taken_new = {one.number for one, _ in named}, {one.number for _, one in named}
    rest_old = [one for one in old if one.number not in taken_old]
    rest_new = [one for one in new if one.number not in taken_new]
    pairs = [*named, *_unnamed(rest_old, rest_new, fitting, what, (old, new))]
    before_of = {now.number: before for before, now in pairs}
    kept = {before.number for before, _ in pairs}
    found: list[Match[T]] = [Match(before_of.get(one.number), one) for one in new]
    return (*found, *(Match(one, None) for one in old if one.number not in kept))


def _unnamed(
    old: list[T], new: list[T], fitting: Callable[[T, T], bool], what: str, lists: tuple[Sequence[T], Sequence[T]]
) -> list[tuple[T, T]]:
    """What names do not tell. Two that have different names are never the same."""

    def may_be(one: T, other: T) -> bool:
        return (one.name is None or other.name is None) and fitting(one, other)

    if len(old) == len(new) and all(may_be(one, other) for one, other in zip(old, new, strict=True)):
        return list(zip(old, new, strict=True))
    pairs = [(one, other) for one in old for other in new if may_be(one, other)]
    olds, news = [one.number for one, _ in pairs], [other.number for _, other in pairs]
    unclear_old = {number for number in olds if olds.count(number) > 1}
    unclear_new = {number for number in news if news.count(number) > 1}
    if unclear_old or unclear_new:
        clashes = [pair for pair in pairs if pair[0].number in unclear_old or pair[1].number in unclear_new]
        marked = {one.number for one, _ in clashes}, {other.number for _, other in clashes}
        _refuse(what, "cannot be told apart without names", *lists, *marked)
    return pairs


def _refuse(what: str, why: str, old: Sequence[T], new: Sequence[T], olds: set[int], news: set[int]) -> None:
    count = max(len(old), len(new))
    pairs = []
    for place in range(count):
        one = old[place] if place < len(old) else None
        other = new[place] if place < len(new) else None
        marked = (one is not None and one.number in olds) or (other is not None and other.number in news)
        pairs.append(Pair(place, one, other, marked))
    raise PipelineChanged(
        f"{what} {why}:\n{side_by_side(pairs, _TITLES)}",
        hint="start the old pipeline once with operators=[...] and sources=[...] in its Job, take another savepoint, "
        "and give the new pipeline the same names; state of one kind or key never becomes that of another",
    )


def _refuse_left_behind(what: str, found: Sequence[Match[T]]) -> None:
    if any(one.now is None for one in found):
        pairs = [Pair(index, one.before, one.now, one.now is None) for index, one in enumerate(found)]
        raise PipelineChanged(
            f"{what} of the savepoint have no place in the pipeline:\n{side_by_side(pairs, _TITLES)}",
            hint="give --allow-non-restored-state if they may be left behind; one that was renamed: --rename OLD=NEW",
        )


def _source_fits(old: SourceInfo, new: SourceInfo) -> bool:
    return old.kind is None or new.kind is None or old.kind == new.kind


def _stays(one: Match[Operator] | Match[SourceInfo]) -> bool:
    before, now = one.before, one.now
    if before is None or now is None:
        return False
    if isinstance(before, SourceInfo) and before.is_named_by_spark:
        return before.name == now.name
    return before.number == now.number


def _sentence(what: str, one: Match[Operator] | Match[SourceInfo], starts: str, ends: str) -> str | None:
    if one.before is None:
        return f"{what} {one.now} is new: it {starts}"
    if one.now is None:
        return f"{what} {one.before} {ends}"
    return None if _stays(one) else f"{what} {one.now} goes on with what was number {one.before.number}"
