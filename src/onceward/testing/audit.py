"""The judge: what the target has, against what the source gave.

A checker that cannot fail proves nothing: `onceward.testing.broken` holds sinks that it must catch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Audit:
    """What is wrong with a target. Each field lists the ids (or epochs) concerned, each once."""

    expected: int
    found: int
    missing: tuple[Hashable, ...] = ()
    duplicate: tuple[Hashable, ...] = ()
    foreign: tuple[Hashable, ...] = ()
    disordered: tuple[Hashable, ...] = ()
    mixed: tuple[Hashable, ...] = ()

    @property
    def exactly_once(self) -> bool:
        """Every row is there once, from one computation, in order."""
        return not (self.missing or self.duplicate or self.foreign or self.disordered or self.mixed)

    @property
    def at_least_once(self) -> bool:
        """Every row is there, and nothing that is not ours."""
        return not (self.missing or self.foreign)

    @property
    def at_most_once(self) -> bool:
        """No row is there twice, and nothing that is not ours."""
        return not (self.duplicate or self.foreign)

    def summary(self) -> str:
        """For people: counts, and a few examples of each kind."""
        lines = [f"{self.found} rows in the target, {self.expected} in the source"]
        for kind in ("missing", "duplicate", "foreign", "disordered", "mixed"):
            found: tuple[Hashable, ...] = getattr(self, kind)
            if found:
                more = ", ..." if len(found) > _SHOWN else ""
                lines.append(f"{kind}: {len(found)} ({', '.join(map(str, found[:_SHOWN]))}{more})")
        return "; ".join(lines) if len(lines) > 1 else f"{lines[0]}; every row once, in order"

    def __str__(self) -> str:
        """The summary."""
        return self.summary()


def audit(
    rows: Sequence[Mapping[str, Any]],
    expected: Iterable[Hashable],
    *,
    id_column: str = "id",
    key_column: str | None = "key",
    epoch_column: str | None = "epoch",
    ordered: bool = True,
) -> Audit:
    """Compare the target's rows, in the order in which the target gives them, with the ids the source gave, in order.

    Order is judged per key and by first appearance, for a duplicate is named as one already. With columns `version` and
    `attempt` (see `engine.SCHEMA`) an epoch whose visible rows come from two computations is named as mixed.
    """
    position = {identifier: index for index, identifier in enumerate(expected)}
    counts = Counter(row[id_column] for row in rows)
    return Audit(
        expected=len(position),
        found=len(rows),
        missing=tuple(i for i in position if i not in counts),
        duplicate=tuple(i for i, count in counts.items() if count > 1 and i in position),
        foreign=tuple(i for i in counts if i not in position),
        disordered=_disordered(rows, position, id_column, key_column) if ordered and key_column else (),
        mixed=_mixed(rows, epoch_column) if epoch_column else (),
    )


def _disordered(
    rows: Sequence[Mapping[str, Any]], position: Mapping[Hashable, int], id_column: str, key_column: str
) -> tuple[Hashable, ...]:
    newest: dict[Hashable, int] = {}
    seen: set[Hashable] = set()
    found = []
    for row in rows:
        identifier, key = row[id_column], row[key_column]
        if identifier in seen or identifier not in position:
            continue
        seen.add(identifier)
        if position[identifier] < newest.get(key, -1):
            found.append(identifier)
        newest[key] = max(newest.get(key, -1), position[identifier])
    return tuple(found)


def _mixed(rows: Sequence[Mapping[str, Any]], epoch_column: str) -> tuple[Hashable, ...]:
    versions: defaultdict[Hashable, set[object]] = defaultdict(set)
    attempts: defaultdict[tuple[Hashable, Hashable], set[object]] = defaultdict(set)
    for row in rows:
        if "version" in row:
            versions[row[epoch_column]].add(row["version"])
        if "attempt" in row:
            attempts[row[epoch_column], row.get("slot")].add(row["attempt"])
    twice = {epoch for epoch, found in versions.items() if len(found) > 1}
    twice |= {epoch for (epoch, _), found in attempts.items() if len(found) > 1}
    return tuple(sorted(twice, key=str))
