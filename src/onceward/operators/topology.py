"""What a query is made of, as values: its stateful operators, sources and sinks, with the names they were given.

A topology is read from a checkpoint (`read.py`), or from a pipeline's plan before it starts (`spark/operators.py`). Two
of them are compared before every start (`guard.py`), and mapped when a savepoint is restored (`mapping.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a key. `type` is Spark's, in one word: `long`, `struct<start:timestamp,end:timestamp>`."""

    name: str
    type: str

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.name} {self.type}"


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator. `number` is Spark's, and the name of its folder in `state/`; `kind` is as Spark names it,
    empty where its description cannot be read.

    `name` is what the user calls it, None where nobody has said. `keys` are the columns of its key, None where nobody
    can tell. `partitions` is 0 where it is not known, which is so before its first epoch.
    """

    number: int
    kind: str
    name: str | None = None
    keys: tuple[Column, ...] | None = None
    partitions: int = 0
    stores: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line of a list: `dedupe 'by user' on (user string)`."""
        called = f" {self.name!r}" if self.name is not None else ""
        by = "" if self.keys is None else f" on ({', '.join(map(str, self.keys))})"
        return f"{self.kind or 'operator'}{called}{by}"


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """A source: its place among the sources of the query, what it is (`FileSource`, `kafka`), None where nobody can
    tell, and what the user calls it. `is_named_by_spark`: Spark keeps its offsets and its list by that name."""

    number: int
    kind: str | None = None
    name: str | None = None
    is_named_by_spark: bool = False

    def __str__(self) -> str:
        """One line of a list: `kafka 'views'`."""
        called = f" {self.name!r}" if self.name is not None else ""
        return f"{self.kind or 'source'}{called}"


@dataclass(frozen=True, slots=True)
class Topology:
    """Operators in the order data flows: what an operator reads comes before it, the left input before the right one.

    Sources are in Spark's order, which is that of the pipeline's text; sinks by name, in no order.
    """

    operators: tuple[Operator, ...] = ()
    sources: tuple[SourceInfo, ...] = ()
    sinks: tuple[str, ...] = ()

    def operator(self, number: int) -> Operator | None:
        """The one that Spark numbers so."""
        return next((one for one in self.operators if one.number == number), None)

    def as_json(self) -> dict[str, Any]:
        """A JSON object, from which `from_json` makes the same value."""
        return {
            "operators": [_operator_json(one) for one in self.operators],
            "sources": [
                {"number": one.number, "kind": one.kind, "name": one.name, "named_by_spark": one.is_named_by_spark}
                for one in self.sources
            ],
            "sinks": list(self.sinks),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Topology:
        """What `as_json` wrote; KeyError, TypeError or ValueError where it is something else."""
        return cls(
            tuple(_operator_from(one) for one in document["operators"]),
            tuple(
                SourceInfo(int(one["number"]), _text(one["kind"]), _text(one["name"]), bool(one["named_by_spark"]))
                for one in document["sources"]
            ),
            tuple(str(one) for one in document["sinks"]),
        )


def _operator_json(one: Operator) -> dict[str, Any]:
    return {
        "number": one.number,
        "kind": one.kind,
        "name": one.name,
        "keys": None if one.keys is None else [[column.name, column.type] for column in one.keys],
        "partitions": one.partitions,
        "stores": list(one.stores),
    }


def _operator_from(document: Mapping[str, Any]) -> Operator:
    keys = document["keys"]
    return Operator(
        number=int(document["number"]),
        kind=str(document["kind"]),
        name=_text(document["name"]),
        keys=None if keys is None else tuple(Column(str(name), str(kind)) for name, kind in keys),
        partitions=int(document["partitions"]),
        stores=tuple(str(one) for one in document["stores"]),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
