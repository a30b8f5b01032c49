"""Executor side of the file sink: one slot's rows on their way into hidden files.

Small batches are gathered before they are written (a Parquet row group of ten thousand rows costs readers and writers
alike), rows are split by partition with Arrow, and both the number of open files and the memory for waiting rows are
bounded.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from onceward.contracts import SlotContext
from onceward.errors import StorageFailed
from onceward.sinks.files.formats import Encoder
from onceward.sinks.files.layout import StagedFile, final_name, folders, staged_name
from onceward.sinks.files.options import Options
from onceward.storage import sync_folder

_BYTES_AT_ONCE = 64 << 20
_ROWS_TO_SPLIT = 1 << 17
_BYTES_OF_ALL_PARTITIONS = 256 << 20
_OPEN_FILES = 64


@dataclass(frozen=True, slots=True)
class _Part:
    """A file that is written to its end, still without a final name: that needs the number of all parts."""

    number: int
    staged: str
    folder: str
    rows: int


class _OpenFile:
    def __init__(self, options: Options, *, staged: str, number: int, first: pa.Table) -> None:
        self.staged = staged
        self.number = number
        self.rows = 0
        path = options.hidden / staged
        # Exclusive: the name belongs to this attempt alone, so a file that is there already is a broken invariant.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        self._stream = pa.OSFile(os.fspath(path), "wb")
        try:
            self._encoder: Encoder = options.file_format.open(
                self._stream, first, options.compression, options.format_options
            )
        except BaseException:
            self._stream.close()
            raise

    def write(self, table: pa.Table) -> int:
        """Add rows; the size of the file so far."""
        self._encoder.write(table)
        self.rows += table.num_rows
        return int(self._stream.tell())

    def close(self) -> None:
        try:
            self._encoder.close()
        finally:
            self._stream.close()

    def drop(self) -> None:
        with suppress(pa.ArrowException, OSError, ValueError):
            self.close()


class _Waiting:
    """The rows of one partition that are not in a file yet, and the file that takes them."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.rows = 0
        self.bytes = 0
        self.file: _OpenFile | None = None

    def add(self, table: pa.Table) -> None:
        self.tables.append(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes

    def take(self) -> pa.Table:
        table = pa.concat_tables(self.tables)
        self.tables, self.rows, self.bytes = [], 0, 0
        return table

    @property
    def rows_of_file(self) -> int:
        return self.rows + (self.file.rows if self.file is not None else 0)


class SlotTransaction:
    """The transaction of one task attempt."""

    def __init__(self, context: SlotContext, options: Options) -> None:
        self.transaction = str(context.transaction)
        self._fingerprint = context.fingerprint
        self._options = options
        self._partitions: OrderedDict[str, _Waiting] = OrderedDict()
        self._to_split: list[pa.Table] = []
        self._rows_to_split = 0
        self._bytes_since_drain = 0
        self._parts_begun = 0
        self._parts: list[_Part] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; most of the time they only wait."""
        if batch.num_rows == 0:
            return
        table = pa.Table.from_batches([batch])
        if not self._options.partition_by:
            self._place("", table)
            return
        self._to_split.append(table)
        self._rows_to_split += table.num_rows
        if self._rows_to_split >= _ROWS_TO_SPLIT:
            self._split()

    def seal(self) -> list[StagedFile]:
        """Write out everything, make it durable, and say where each file is and belongs."""
        self._split()
        for folder in list(self._partitions):
            self._finish(folder)
        self._parts.sort(key=lambda part: part.number)
        hidden = self._options.hidden
        sizes = [_durable(hidden / part.staged) for part in self._parts]
        sync_folder(hidden)
        return [self._sealed(part, size) for part, size in zip(self._parts, sizes, strict=True)]

    def discard(self) -> None:
        """Close and remove whatever this attempt has made."""
        for waiting in self._partitions.values():
            if waiting.file is not None:
                waiting.file.drop()
        self._partitions.clear()
        for number in range(self._parts_begun):
            (self._options.hidden / self._staged_name(number)).unlink(missing_ok=True)

    def _staged_name(self, number: int) -> str:
        return staged_name(self.transaction, part=number, extension=self._options.extension)

    def _sealed(self, part: _Part, size: int) -> StagedFile:
        name = final_name(
            self.transaction,
            self._fingerprint,
            part=part.number,
            parts=len(self._parts),
            extension=self._options.extension,
        )
        return StagedFile(part.staged, f"{part.folder}/{name}" if part.folder else name, part.rows, size)

    def _split(self) -> None:
        if not self._to_split:
            return
        table = pa.concat_tables(self._to_split).combine_chunks()
        self._to_split, self._rows_to_split = [], 0
        for folder, rows in split(table, self._options.partition_by):
            self._place(folder, rows)
        # The pieces of one table share its memory, so it is given back only when all of them are written.
        self._bytes_since_drain += table.nbytes
        if self._bytes_since_drain >= _BYTES_OF_ALL_PARTITIONS:
            for folder in list(self._partitions):
                self._write(folder)
            self._bytes_since_drain = 0

    def _place(self, folder: str, table: pa.Table) -> None:
        """Let the rows wait for their file; a file that has its number of rows is finished."""
        limit = self._options.max_rows_per_file
        while table.num_rows:
            waiting = self._partitions.setdefault(folder, _Waiting())
            room = table.num_rows if limit is None else limit - waiting.rows_of_file
            waiting.add(table.slice(0, room))
            table = table.slice(room)
            if limit is not None and waiting.rows_of_file >= limit:
                self._finish(folder)
            elif waiting.rows >= self._options.file_format.rows_per_group or waiting.bytes >= self._bytes_at_once:
                self._write(folder)

    @property
    def _bytes_at_once(self) -> int:
        return min(_BYTES_AT_ONCE, self._options.max_bytes_per_file or _BYTES_AT_ONCE)

    def _write(self, folder: str) -> None:
        waiting = self._partitions[folder]
        if not waiting.rows:
            return
        table = waiting.take()
        if waiting.file is None:
            self._close_oldest()
            number, self._parts_begun = self._parts_begun, self._parts_begun + 1
            waiting.file = _OpenFile(self._options, staged=self._staged_name(number), number=number, first=table)
        self._partitions.move_to_end(folder)
        size = waiting.file.write(table)
        if self._options.max_bytes_per_file is not None and size >= self._options.max_bytes_per_file:
            self._finish(folder)

    def _close_oldest(self) -> None:
        """Make room for one more open file by finishing the one that was written to longest ago."""
        opened = [folder for folder, waiting in self._partitions.items() if waiting.file is not None]
        if len(opened) >= _OPEN_FILES:
            self._finish(opened[0])

    def _finish(self, folder: str) -> None:
        if folder in self._partitions:
            self._write(folder)
        # Writing the last rows may itself have filled, and so finished, the file.
        waiting = self._partitions.pop(folder, None)
        if waiting is not None and waiting.file is not None:
            waiting.file.close()
            self._parts.append(_Part(waiting.file.number, waiting.file.staged, folder, waiting.file.rows))


def split(table: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The table's rows by partition folder, in their order, without the partition columns."""
    key = _codes(table, by)
    values = table.select(list(by))
    rows = table.drop_columns(list(by))
    order = pc.sort_indices(key)
    runs = pc.run_end_encode(key.take(order), run_end_type=pa.int64())
    ends = runs.run_ends.to_pylist()
    starts = [0, *ends[:-1]]
    firsts = values.take(order.take(pa.array(starts)))
    names = folders([(name, firsts.column(name).combine_chunks()) for name in by])
    if len(ends) > 1:
        rows = rows.take(order)
    for name, start, end in zip(names, starts, ends, strict=True):
        yield name, rows.slice(start, end - start)


def _codes(table: pa.Table, by: Sequence[str]) -> pa.Array:
    """A number for each row, equal where all partition values are."""
    key = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
    for name in by:
        encoded = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        both = pc.add(pc.multiply(key, len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
        # Numbered anew at every step, so that the product never outgrows 64 bits.
        key = both.dictionary_encode().indices.cast(pa.int64())
    return key


def _durable(path: Path) -> int:
    """Force the file's content to the disk; its size."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise StorageFailed(
            f"{path} vanished before it was pre-committed",
            hint="another driver has aborted this attempt, or someone cleans up in the hidden folder",
        ) from None
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
