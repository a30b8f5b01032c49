"""Rows that Redis does not take. A script is not rolled back, so they are found by looking, with nothing written.

The rules are those of `pack` and of the checks in `scripts`: a counter must be able to hold what stands in it after
each row, so that what is left can be added in parts of any size. At the end the script itself tries the rest, and
writes nothing: an error that is in no rule is traced to its row by bisection.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from onceward.connections.redis import RedisConnection, driver, hash_slot
from onceward.contracts import RejectedRow, SlotValues
from onceward.errors import RowsRejected
from onceward.sinks.bisection import Refusal, rejected_rows
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.redis import commands, receipts
from onceward.sinks.redis.apply import Delivery
from onceward.sinks.redis.arithmetic import MOST_FRACTION_DIGITS, MOST_WHOLE_DIGITS
from onceward.sinks.redis.compatibility import adds_fractions
from onceward.sinks.redis.errors import classify
from onceward.sinks.redis.options import HOLDS, Layout
from onceward.sinks.redis.receipts import Scope
from onceward.sinks.redis.rows import NULL_KEY, filled, misfits
from onceward.sinks.redis.scripts import LOOK

_ROWS_AT_ONCE = 5_000
_WHOLE = range(-(2**63), 2**63)
# Below the limit of the script by more than its sums of doubles can be off.
_MOST_FRACTION = 10.0**MOST_WHOLE_DIGITS * (1 - 1e-12)
_IS_WHOLE = re.compile(rb"0|(?=.{1,20}\Z)-?[1-9][0-9]*")
_IS_FRACTION = re.compile(rb"[-+]?([0-9]+)\.?([0-9]*)(?:[eE]([-+]?[0-9]+))?")


def find_rejected(delivery: Delivery, slots: Sequence[SlotValues]) -> list[RejectedRow]:
    """All rows that are not in and would not be taken."""
    connection, scope, layout = delivery.connection, delivery.scope, delivery.options.layout
    judge, found = _Judge(connection, scope, layout), list[RejectedRow]()
    for values, rows_in in zip(slots, receipts.rows_in(connection.client(scope.key), slots, scope), strict=True):
        if rows_in == receipts.ALL:
            continue
        # Without a row: an error that comes all the same is the fault of none.
        delivery.try_out(replace(values, rows=0, read=partial(iter, ())))
        inside = _Inside(connection, scope, values, rows_in) if values.receipt is not None else None
        fitting = list[int]()
        for row in _rows(values, layout):
            why = None
            if row.key is None or row.member is None:
                if not delivery.options.skips_null_keys:
                    why = NULL_KEY.format(option="key" if row.key is None else "member")
            elif inside is not None and inside.has(row.number, row.key):
                continue
            else:
                why = judge.why(row)
            if why is None:
                fitting.append(row.number)
            else:
                found.append(RejectedRow(values.slot, row.number, why))
        rest = replace(values, rows=len(fitting), read=partial(_only, values, fitting))
        for other in rejected_rows([rest], partial(_tried_out, delivery)):
            found.append(replace(other, row=fitting[other.row]))
    return found


def _only(values: SlotValues, fitting: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """These rows of the slot, some thousand at a time."""
    first = 0
    wanted = np.asarray(fitting, np.int64)
    for batch in values.read():
        here = wanted[(wanted >= first) & (wanted < first + batch.num_rows)] - first
        for start in range(0, len(here), _ROWS_AT_ONCE):
            yield batch.take(pa.array(here[start : start + _ROWS_AT_ONCE]))
        first += batch.num_rows


def _tried_out(delivery: Delivery, values: SlotValues) -> Refusal | None:
    try:
        delivery.try_out(values)
    except RowsRejected as error:
        return Refusal(error.message)
    except driver().RedisError as error:
        if classify(error) is not ErrorClass.UNKNOWN:
            raise
        return Refusal(str(error), is_certain=False)
    return None


@dataclass(frozen=True, slots=True)
class _Row:
    """`amount` is what a counter gets; None: nothing. `wrong` says what is wrong with the row whatever Redis holds.
    `around` are key and member of the rows that it came with: they are asked about together."""

    number: int
    key: bytes | None
    member: bytes | None
    amount: int | float | None
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
    keys = filled(layout.key, batch)
    members = _texts(layout.member, batch) if layout.member is not None else [b""] * batch.num_rows
    around = list(zip(keys.to_pylist(), members, strict=True))
    counts = layout.kind in ("incr", "hincr")
    amounts = [1] * batch.num_rows if layout.value is None or not counts else batch.column(layout.value).to_pylist()
    fractions = adds_fractions(layout, batch.schema)
    wrong: dict[int, str] = {}
    for found in misfits(batch, layout, keys):
        for index in np.flatnonzero(np.asarray(found.rows)).tolist():
            wrong.setdefault(index, found.why(index))
    for index, (key, member) in enumerate(around):
        amount = amounts[index] if counts else None
        if fractions and amount is not None:
            amount = float(amount)
        yield _Row(first + index, key, member, amount, fractions, wrong.get(index), around)


def _texts(template: Any, batch: pa.RecordBatch) -> list[bytes | None]:
    texts: list[bytes | None] = filled(template, batch).to_pylist()
    return texts


@dataclass
class _Inside:
    """Which rows of a slot are in: the first ones, and in a cluster the first ones of each hash slot."""

    connection: RedisConnection
    scope: Scope
    values: SlotValues
    rows: int
    _groups: dict[int, int] = field(default_factory=dict)
    _passed: Counter[int] = field(default_factory=Counter)

    def has(self, number: int, key: bytes) -> bool:
        """Asked once for every row that has a key, in order."""
        if not self.connection.is_cluster:
            return number < self.rows
        group = hash_slot(key)
        if group not in self._groups:
            self._groups[group] = receipts.rows_of_group(self.connection, self.scope, self.values, group)
        self._passed[group] += 1
        return self._passed[group] <= self._groups[group]


@dataclass
class _Judge:
    """What the keys hold, asked for some thousand at a time, and what would be added to them."""

    connection: RedisConnection
    scope: Scope
    layout: Layout
    _keys: dict[bytes, str | None] = field(default_factory=dict)
    """What is wrong with a key; None: nothing."""
    _sums: dict[tuple[bytes, bytes], int | float | None] = field(default_factory=dict)

    def why(self, row: _Row) -> str | None:
        """Why the row is not taken; None when it is."""
        key, member = row.key or b"", row.member or b""
        counts = self.layout.kind in ("incr", "hincr")
        if row.wrong is not None:
            return row.wrong
        if counts and row.amount is None and self.layout.ttl_ms is None:
            return None
        if key not in self._keys:
            self._ask_keys({key for key, _ in row.around if key is not None}, row.fractions)
        why = self._keys[key]
        if why is None and counts and row.amount is not None:
            why = self._why_not_counted(row, row.amount, key, member)
        return None if why is None else f"the key {key.decode(errors='backslashreplace')!r} cannot be written: {why}"

    def _why_not_counted(self, row: _Row, amount: int | float, key: bytes, member: bytes) -> str | None:
        if (key, member) not in self._sums:
            self._ask_counters({(k, m) for k, m in row.around if k is not None and m is not None}, row.fractions)
        held = self._sums[key, member]
        if held is None:
            return "what it holds is not a number that can be counted on"
        if not row.fractions and amount not in _WHOLE:
            return "more would be added than a counter can hold"
        total = held + amount
        if abs(total) >= _MOST_FRACTION if row.fractions else total not in _WHOLE:
            return "it would be more than a counter can hold"
        self._sums[key, member] = total
        return None

    def _ask_keys(self, keys: Iterable[bytes], fractions: bool) -> None:
        new = [key for key in keys if key not in self._keys]
        needed = commands.packed(commands.all_of(self.layout, fractions=fractions))
        answers = self.connection.run_all(LOOK, [(self._client(key), self._beside(key), (key, needed)) for key in new])
        for key, (held, forbidden) in zip(new, answers, strict=True):
            self._keys[key] = self._why_not(held.decode(), forbidden.decode())

    def _why_not(self, held: str, forbidden: str) -> str | None:
        expected = HOLDS.get(self.layout.kind)
        if forbidden:
            return f"this user may not run {forbidden} on it"
        if held == "receipts":
            return "it holds receipts of onceward"
        if expected is not None and held not in ("none", expected):
            return f"it holds a {held}, not a {expected}"
        return None

    def _ask_counters(self, counters: Iterable[tuple[bytes, bytes]], fractions: bool) -> None:
        new = [counter for counter in counters if counter not in self._sums]
        is_field = self.layout.kind == "hincr"
        usable = [counter for counter in new if counter[0] in self._keys and self._keys[counter[0]] is None]
        sent: dict[int, tuple[Any, list[tuple[bytes, bytes]]]] = {}
        for counter in usable:
            client = self._client(counter[0])
            pipeline, asked = sent.setdefault(id(client), (client.pipeline(transaction=False), []))
            pipeline.execute_command(*(("HGET", *counter) if is_field else ("GET", counter[0])))
            asked.append(counter)
        for pipeline, asked in sent.values():
            for counter, answer in zip(asked, pipeline.execute(), strict=True):
                self._sums[counter] = _held(answer, fractions)

    def _beside(self, key: bytes) -> str:
        """A key of ours on the same server."""
        return receipts.scope_of_group(self.scope, hash_slot(key)).key if self.connection.is_cluster else self.scope.key

    def _client(self, key: bytes) -> Any:
        return self.connection.client_of(hash_slot(key)) if self.connection.is_cluster else self.connection.seed


def _held(text: bytes | None, fractions: bool) -> int | float | None:
    """What a counter holds; None where that is no number to the script."""
    if text is None:
        return 0
    if not fractions:
        return int(text) if _IS_WHOLE.fullmatch(text) and int(text) in _WHOLE else None
    found = _IS_FRACTION.fullmatch(text)
    if found is None:
        return None
    whole, fraction, power = len(found[1].lstrip(b"0")), len(found[2]), int(found[3] or 0)
    if abs(power) > MOST_WHOLE_DIGITS + MOST_FRACTION_DIGITS:
        return None
    number = float(text)
    fits = whole + max(power, 0) <= MOST_WHOLE_DIGITS and fraction - min(power, 0) <= MOST_FRACTION_DIGITS
    return number if fits and abs(number) < _MOST_FRACTION else None
