"""Rows that Redis does not take. A script is not rolled back, so they are found by looking, with nothing written.

The rules are those of `pack` and of the checks in `scripts`. A counter is judged by all rows that would be added to it
in this epoch, signs aside: what is left can be added in parts of any size.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from onceward.connections.redis import Way, hash_slot
from onceward.contracts import RejectedRow, SlotValues
from onceward.sinks.redis import ledger
from onceward.sinks.redis.layout import Layout, adds_fractions
from onceward.sinks.redis.ledger import Scope
from onceward.sinks.redis.rows import NULL_KEY, filled, no_number, not_numbers

_ROWS_AT_ONCE = 5_000
# Below the limits of the script by more than its sums of doubles can be off.
_MOST_WHOLE = 4611686018427387904 * (1 - 1e-12)
_MOST_FRACTION = 1e300 * (1 - 1e-12)
_WHOLE = re.compile(rb"0|(?=.{1,20}\Z)-?[1-9][0-9]*")
_FRACTION = re.compile(rb"[-+]?[0-9]+\.?[0-9]*([eE][-+]?[0-9]+)?")
HOLDS = {"hash": "hash", "field": "hash", "hincr": "hash", "zset": "zset", "incr": "string"}
"""What a key must hold, if anything; a string is set whatever was there."""


def find_rejected(
    way: Way, slots: Sequence[SlotValues], scope: Scope, layout: Layout, *, skips_null_keys: bool
) -> list[RejectedRow]:
    """All rows that are not in and would not be taken."""
    judge, found = _Judge(way, layout), []
    for values, rows_in in zip(slots, ledger.rows_in(way.client(scope.key), slots, scope), strict=True):
        if rows_in == ledger.ALL:
            continue
        inside = _Inside(way, scope, values.slot, rows_in) if values.receipt is not None else None
        for row in _rows(values, layout):
            if row.key is None or row.member is None:
                if not skips_null_keys:
                    option = "key" if row.key is None else "member"
                    found.append(RejectedRow(values.slot, row.number, NULL_KEY.format(option=option)))
            elif inside is None or not inside.has(row.number, row.key):
                why = judge.why(row)
                if why is not None:
                    found.append(RejectedRow(values.slot, row.number, why))
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    """`amount` is what a counter gets, without its sign; None: nothing. `wrong` says why the value is none that Redis
    takes. `around` are key and member of the rows that it came with: they are asked about together."""

    number: int
    key: bytes | None
    member: bytes | None
    amount: float | None
    fractions: bool
    wrong: str | None
    around: Sequence[tuple[bytes | None, bytes | None]]


def _rows(values: SlotValues, layout: Layout) -> Iterator[_Row]:
    """One by one: this is for the rare day on which someone looks for the one that is wrong."""
    first = 0
    for batch in values.read():
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            yield from _rows_of(batch.slice(start, _ROWS_AT_ONCE), layout, first + start)
        first += batch.num_rows


def _rows_of(batch: pa.RecordBatch, layout: Layout, first: int) -> Iterator[_Row]:
    keys = _texts(layout.key, batch)
    members = _texts(layout.member, batch) if layout.member is not None else [b""] * batch.num_rows
    around = list(zip(keys, members, strict=True))
    counts = layout.kind in ("incr", "hincr")
    amounts = [1] * batch.num_rows if layout.value is None else batch.column(layout.value).to_pylist()
    wrong = not_numbers(batch.column(layout.value), layout) if layout.value is not None else None
    for place, (key, member) in enumerate(around):
        amount = amounts[place] if counts else None
        yield _Row(
            first + place,
            key,
            member,
            None if amount is None else abs(float(amount)),
            counts and adds_fractions(layout, batch.schema),
            no_number(layout, amounts[place]) if wrong is not None and wrong[place].as_py() else None,
            around,
        )


def _texts(template: Any, batch: pa.RecordBatch) -> list[bytes | None]:
    texts: list[bytes | None] = filled(template, batch).to_pylist()
    return texts


@dataclass
class _Inside:
    """Which rows of a slot are in: the first ones, and in a cluster the first ones of each hash slot."""

    way: Way
    scope: Scope
    slot: int
    rows: int
    _groups: dict[int, int] = field(default_factory=dict)
    _passed: Counter[int] = field(default_factory=Counter)

    def has(self, number: int, key: bytes) -> bool:
        """Asked once for every row that has a key, in order."""
        if not self.way.is_cluster:
            return number < self.rows
        group = hash_slot(key)
        if group not in self._groups:
            self._groups[group] = ledger.rows_of_group(self.way, self.scope, self.slot, group)
        self._passed[group] += 1
        return self._passed[group] <= self._groups[group]


@dataclass
class _Judge:
    """What the keys hold, asked for some thousand at a time, and what would be added to them."""

    way: Way
    layout: Layout
    _types: dict[bytes, str] = field(default_factory=dict)
    _sums: dict[tuple[bytes, bytes], float] = field(default_factory=dict)

    def why(self, row: _Row) -> str | None:
        """Why the row is not taken; None when it is."""
        key, member = row.key or b"", row.member or b""
        counts = self.layout.kind in ("incr", "hincr")
        if row.wrong is not None:
            return row.wrong
        if self.layout.kind == "string" or (counts and row.amount is None):
            return None
        if key not in self._types:
            self._ask_types({key for key, _ in row.around if key is not None})
        held, expected = self._types[key], HOLDS[self.layout.kind]
        if held not in ("none", expected):
            return _of_key(key, f"it holds a {held}, not a {expected}")
        return self._why_not_counted(row, key, member) if counts else None

    def _why_not_counted(self, row: _Row, key: bytes, member: bytes) -> str | None:
        if (key, member) not in self._sums:
            self._ask_counters({(k, m) for k, m in row.around if k is not None and m is not None}, row.fractions)
        held = self._sums[key, member]
        if math.isnan(held):
            return _of_key(key, "what it holds is not a number that can be counted on")
        total = held + (row.amount or 0.0)
        if total >= (_MOST_FRACTION if row.fractions else _MOST_WHOLE):
            return _of_key(key, "it would come near to what a counter can hold")
        self._sums[key, member] = total
        return None

    def _ask_types(self, keys: Iterable[bytes]) -> None:
        new = [key for key in keys if key not in self._types]
        for key, answer in self._asked((key, ("TYPE", key)) for key in new):
            self._types[key] = answer.decode()

    def _ask_counters(self, places: Iterable[tuple[bytes, bytes]], fractions: bool) -> None:
        new = [place for place in places if place not in self._sums]
        is_field = self.layout.kind == "hincr"
        usable = [place for place in new if self._types.get(place[0]) in ("none", HOLDS[self.layout.kind])]
        commands = ((place, ("HGET", *place) if is_field else ("GET", place[0])) for place in usable)
        for place, answer in self._asked(commands):
            self._sums[place] = _held(answer, fractions)

    def _asked(self, commands: Iterable[tuple[Any, tuple[Any, ...]]]) -> Iterator[tuple[Any, Any]]:
        """Each command's answer, with what it was asked for; a pipeline for each server."""
        sent: dict[int, tuple[Any, list[Any]]] = {}
        for about, command in commands:
            client = self.way.client_of(hash_slot(command[1])) if self.way.is_cluster else self.way.seed
            pipeline, asked = sent.setdefault(id(client), (client.pipeline(transaction=False), []))
            pipeline.execute_command(*command)
            asked.append(about)
        for pipeline, asked in sent.values():
            yield from zip(asked, pipeline.execute(), strict=True)


def _held(text: bytes | None, fractions: bool) -> float:
    """What a counter holds, without its sign; NaN where that is no number to the script."""
    if text is None:
        return 0.0
    if not (_FRACTION if fractions else _WHOLE).fullmatch(text):
        return math.nan
    number = abs(float(text))
    return number if not fractions or number < _MOST_FRACTION else math.nan


def _of_key(key: bytes, why: str) -> str:
    return f"the key {key.decode(errors='backslashreplace')!r} cannot be written: {why}"
