"""Redis Cluster: a transaction stays within one hash slot, so a slot's rows are sorted by it.

Each group of rows has its own receipt, under a key of the same hash slot, and goes in with it at once. The slot's own
receipt is begun before its first group and finished after its last; it says that all groups are in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from onceward.connections.redis import hash_slot
from onceward.contracts import SlotValues
from onceward.sinks.redis.options import Layout, Options
from onceward.sinks.redis.parts import Piece, piece_of
from onceward.sinks.redis.rows import PackedRows, pack


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one slot whose keys are in one hash slot."""

    hash_slot: int
    pieces: tuple[Piece, ...]


def groups(
    values: SlotValues,
    options: Options,
    *,
    rows_in: Callable[[int], int] = lambda hash_slot: 0,
) -> Iterator[Group]:
    """The slot's rows by hash slot; inside a group they keep their order. The whole slot is in memory meanwhile.

    `rows_in` says how many rows of a group are in: its pieces begin behind them.
    """
    packed, first = [], 0
    for batch in values.read():
        packed.append(pack(batch, options.layout, skips_null_keys=options.skips_null_keys, first_row=first))
        first += batch.num_rows
    packed = [rows for rows in packed if len(rows)]
    if not packed:
        return
    is_plain, is_suspect = all(rows.is_plain for rows in packed), any(rows.is_suspect for rows in packed)
    sample = replace(packed[0], keys=None, is_plain=is_plain, is_suspect=is_suspect)
    rows = pa.concat_arrays([each.rows.cast(pa.large_binary()) for each in packed])
    numbers = np.concatenate([_hash_slots(each, options.layout) for each in packed])
    order = np.argsort(numbers, kind="stable")
    rows, numbers = rows.take(pa.array(order)), numbers[order]
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, end in pairwise(bounds):
        group = rows.slice(start, end - start)
        first = min(rows_in(int(numbers[start])), len(group))
        rows_at_once = options.max_rows_per_script or len(group)
        yield Group(int(numbers[start]), tuple(_pieces(values, group, sample, first, rows_at_once)))


def _hash_slots(packed: PackedRows, layout: Layout) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """One for each row; each distinct key is looked at once."""
    if packed.keys is None:
        literal = layout.key.literal or b""
        return np.full(len(packed), hash_slot(literal), np.int64)
    encoded = packed.keys.dictionary_encode()
    distinct = np.fromiter(map(hash_slot, encoded.dictionary.to_pylist()), np.int64, len(encoded.dictionary))
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]] = distinct[np.asarray(encoded.indices)]
    return numbers


def _pieces(
    values: SlotValues, rows: pa.Array, sample: PackedRows, first: int, max_rows_per_script: int
) -> Iterator[Piece]:
    for start in range(first, len(rows), max_rows_per_script):
        some = rows.slice(start, max_rows_per_script)
        past = start + len(some)
        yield piece_of(values, first=start, past=past, is_last=past == len(rows), packed=replace(sample, rows=some))
