"""Rows that the table does not take. Values that it would change are found before they are sent, the rest by trying.

`LOAD DATA` and the server's own habits change values without an error: NULL becomes a default, the next number or the
present time, "3" the third member of an ENUM, and trailing blanks are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from onceward.connections.mysql import MySQLError, Session
from onceward.contracts import RejectedRow, SlotValues
from onceward.sinks.bisection import Refusal, rejected_rows
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.mysql.encode import plain
from onceward.sinks.mysql.errors import RowRefused, classify, reason
from onceward.sinks.mysql.options import Options
from onceward.sinks.mysql.table import Column, Table

# 0001-01-01 and 9999-12-31, in days since 1970.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_SHOWN = 40
# At most; those that are not here have one.
_BYTES_OF_A_CHARACTER = {
    **dict.fromkeys(("ucs2", "big5", "cp932", "euckr", "gb2312", "gbk", "sjis"), 2),
    **dict.fromkeys(("eucjpms", "ujis"), 3),
    **dict.fromkeys(("utf16", "utf16le", "utf32", "gb18030"), 4),
}


def find_rejected(
    session: Session, options: Options, slots: Sequence[SlotValues], write: Callable[[SlotValues], None]
) -> list[RejectedRow]:
    """Try everything, part by part, in the caller's transaction, which the caller rolls back.

    What fails even without rows is raised: no row is to blame then.
    """

    def attempt(part: SlotValues) -> Refusal | None:
        if options.mode == "upsert":
            session.execute(f"DROP TEMPORARY TABLE IF EXISTS {options.incoming}, {options.latest}")
        session.execute("SAVEPOINT part")
        try:
            write(part)
        except (MySQLError, RowRefused) as error:
            meaning = classify(error)
            if meaning in (ErrorClass.RETRY, ErrorClass.TARGET):
                raise
            session.execute("ROLLBACK TO SAVEPOINT part")
            return Refusal(reason(error), is_certain=meaning is ErrorClass.ROW)
        return None

    for slot in slots[:1]:
        write(replace(slot, rows=0, read=partial(_no_rows, slot)))
    return rejected_rows(slots, attempt)


def _no_rows(slot: SlotValues) -> Iterator[pa.RecordBatch]:
    yield from (batch.slice(0, 0) for batch in islice(slot.read(), 1))


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that the table would change. `row` counts from the first one of the batch."""

    row: int
    column: str
    value: str
    why: str
    hint: str


def misfit(batch: pa.RecordBatch, table: Table, *, non_finite: str) -> Misfit | None:
    """One of them; None when the server can be given the batch."""
    for field, values in zip(batch.schema, batch.columns, strict=True):
        column = table.columns.get(field.name.lower())
        # The flag for deletions is a column of ours, and NULL there means that the row is not deleted.
        if column is not None:
            found = next(_found(plain(values), column, non_finite), None)
            if found is not None:
                bad, why, hint = found
                row = pc.index(pc.fill_null(bad, False), pa.scalar(True)).as_py()
                return Misfit(row, field.name, _shown(values[row]), why, hint)
    return None


_Found = tuple[pa.Array, str, str]
"""Which rows are at fault, why, and what to do."""


def _found(values: pa.Array, column: Column, non_finite: str) -> Iterator[_Found]:
    kind = values.type
    if not column.is_nullable and values.null_count:
        yield values.is_null(), "the column is NOT NULL", "give it one in the query (coalesce)"
    if pt.is_floating(kind):
        yield from _not_finite(values, column, non_finite)
    elif pt.is_timestamp(kind) or pt.is_date(kind):
        yield from _beyond(values)
    elif pt.is_time(kind):
        yield from _finer(values)
    elif pt.is_string(kind):
        yield from _text(values, column)


def _any(bad: pa.Array, what: str, hint: str) -> Iterator[_Found]:
    if pc.any(bad).as_py():
        yield bad, what, hint


def _not_finite(values: pa.Array, column: Column, non_finite: str) -> Iterator[_Found]:
    if non_finite == "refuse" or not column.is_nullable:
        why = "MySQL has neither NaN nor infinity"
        hint = 'filter such rows out in the query, or say non_finite="null" and let the column take NULL'
        yield from _any(pc.invert(pc.is_finite(values)), why, hint)


def _beyond(values: pa.Array) -> Iterator[_Found]:
    """Compared as numbers: neither Python nor a cast has room for every time that Arrow has."""
    kind = values.type
    if pt.is_timestamp(kind) and kind.unit == "ns":
        # All of them are within 1677 and 2262.
        yield from _finer(values)
        return
    a_day = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}[kind.unit] if pt.is_timestamp(kind) else 1
    a_day = 86_400_000 if pt.is_date64(kind) else a_day
    numbers = values.view(pa.int32() if pt.is_date32(kind) else pa.int64())
    first, last = _FIRST_DAY * a_day, (_LAST_DAY + 1) * a_day - 1
    extremes = pc.min_max(numbers)
    if extremes["min"].is_valid and (extremes["min"].as_py() < first or extremes["max"].as_py() > last):
        outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
        yield outside, "MySQL's years are 1 to 9999", "filter such rows out in the query"


def _finer(values: pa.Array) -> Iterator[_Found]:
    if values.type.unit == "ns":
        numbers = values.view(pa.int64())
        whole = pc.multiply(pc.divide(numbers, 1000), 1000)
        yield from _any(
            pc.not_equal(numbers, whole), "MySQL has no nanoseconds", "round it to microseconds in the query"
        )


def _text(values: pa.Array, column: Column) -> Iterator[_Found]:
    if column.kind in ("enum", "set"):
        texts = pc.unique(values).drop_null().to_pylist()
        known = pa.array([text for text in texts if _is_member(text, column)], pa.string())
        if len(known) < len(texts):
            strange = pc.and_(values.is_valid(), pc.invert(pc.is_in(values, value_set=known)))
            yield strange, f"the column is {column.declared}", "spell it as the column does in the query"
    elif column.length is not None:
        why = f"the column is {column.declared}, and that is longer"
        yield from _any(_too_long(values, column, column.length), why, "widen the column, or cut the text")
        if column.kind == "char":
            why = "CHAR drops the blanks at the end"
            yield from _any(pc.ends_with(values, " "), why, "trim it in the query, or make the column a VARCHAR")


def _too_long(values: pa.Array, column: Column, length: int) -> pa.Array:
    """The server cuts blanks off the end of what is too long, and only notes it; with other letters it warns.

    CHAR and VARCHAR count characters, the others bytes in the column's own character set.
    """
    if column.kind in ("char", "varchar"):
        return pc.greater(pc.utf8_length(values), length)
    if str(column.charset).startswith("utf8"):
        return pc.greater(pc.binary_length(values), length)
    width = _BYTES_OF_A_CHARACTER.get(str(column.charset), 1)
    long = pc.greater(pc.multiply(pc.utf8_length(values).cast(pa.int64()), width), length)
    return long if width == 1 else pc.and_(long, pc.ends_with(values, " "))


def _is_member(text: str, column: Column) -> bool:
    """Spelled as the server would give it back: a SET has each member once, in the order of its declaration."""
    members = column.members
    if column.kind == "enum":
        return text in members
    places = [members.index(part) if part in members else -1 for part in text.split(",")] if text else []
    return -1 not in places and places == sorted(set(places))


def _shown(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "no value"
    try:
        text = repr(value.as_py()) if isinstance(value.as_py(), str) else str(value.as_py())
    except (ValueError, OverflowError, pa.ArrowException):
        # A time that Python does not have.
        text = f"the time {value.value} since 1970"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
