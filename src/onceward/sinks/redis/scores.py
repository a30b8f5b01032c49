"""Numbers that a sorted set or a counter cannot take, or would change in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from onceward.sinks.redis.options import Layout

_MOST_EXACT = 1 << 53
_DIGITS_OF_DOUBLES = 15


@dataclass(frozen=True, slots=True)
class Misfits:
    """The rows where `rows` is true do not fit, all for one reason; `why` says it of the row at one place."""

    rows: pa.Array
    why: Callable[[int], str]


def misfits_of_numbers(column: pa.Array, layout: Layout) -> Iterator[Misfits]:
    """Of the column that holds scores or amounts; other columns have none."""
    if layout.kind not in ("zset", "incr", "hincr"):
        return
    if pt.is_floating(column.type):
        wrong = pc.is_nan(column) if layout.kind == "zset" else pc.invert(pc.is_finite(column))
        what = "order by" if layout.kind == "zset" else "add"
        yield Misfits(
            pc.fill_null(wrong, False), lambda place: f"{_named(column, layout, place)}, which Redis cannot {what}"
        )
    elif layout.kind == "zset" and not _all_fit(column):
        yield Misfits(
            pa.array([value is not None and not _is_double(value) for value in column.to_pylist()]),
            lambda place: (
                f"{_named(column, layout, place)}: scores are doubles, which would round it; cast it to double "
                "in the query if that may be"
            ),
        )


def _named(column: pa.Array, layout: Layout, place: int) -> str:
    return f"{layout.value!r} is {column[place].as_py()}"


def _all_fit(column: pa.Array) -> bool:
    """Without looking at each: whole numbers up to 2^53, decimals of no more than 15 digits."""
    if pt.is_decimal(column.type):
        return int(column.type.precision) <= _DIGITS_OF_DOUBLES
    bounds = pc.min_max(column).as_py()
    return bounds["min"] is None or (bounds["min"] >= -_MOST_EXACT and bounds["max"] <= _MOST_EXACT)


def _is_double(value: int | Decimal) -> bool:
    """Whether whoever reads the double gets back this number: whole ones exactly, others by their shortest text."""
    number = float(value)
    return int(number) == value if isinstance(value, int) else Decimal(repr(number)) == value
