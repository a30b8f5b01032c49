"""One segment: the rows of one slot as a compressed Arrow IPC stream, checked as a whole before a row is believed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO, Final

import pyarrow as pa

from onceward.contracts import Handle, Storage
from onceward.errors import DamagedFile
from onceward.identity import TransactionName

VERSION: Final = 1
_VERSION_KEY: Final = b"onceward.segment"
_CHUNK: Final = 1 << 20


class _Digested:
    """Passes bytes on to a file and keeps their digest. Arrow writes through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
        self.length = 0
        self.closed = False
        self.dropped = False

    def write(self, data: bytes) -> int:
        if self.dropped:
            return len(data)
        self.sha256.update(data)
        self.length += len(data)
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True


class SegmentWriter:
    """Executor: streams batches into a new segment; `finish` makes it durable and names it."""

    def __init__(self, storage: Storage, path: str, schema: pa.Schema) -> None:
        self._path = path
        self._file = storage.open_new(path)
        self._digested = _Digested(self._file)
        # Arrow writes many small pieces; gathering them first spares a call into Python for each.
        self._buffered = pa.BufferedOutputStream(pa.PythonFile(self._digested, "w"), _CHUNK)
        metadata = {**(schema.metadata or {}), _VERSION_KEY: str(VERSION).encode()}
        self._schema = schema.with_metadata(metadata)
        self._writer = pa.ipc.new_stream(
            self._buffered, self._schema, options=pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        )
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def finish(self) -> Handle:
        """Close it durably; the handle carries what a reader needs to trust it."""
        self._writer.close()
        self._buffered.flush()
        self._file.close()
        return {
            "segment": self._path,
            "rows": self._rows,
            "bytes": self._digested.length,
            "sha256": self._digested.sha256.hexdigest(),
        }

    def abandon(self) -> None:
        """Let go of an unfinished segment: what is still buffered goes nowhere, and the file is closed."""
        self._digested.dropped = True
        self._buffered.close()
        self._file.close()


def read_segment(storage: Storage, handle: Handle) -> Iterator[pa.RecordBatch]:
    """The batches of a segment, after its length and checksum were found to be those of the handle.

    A small one is read once, and decoded in this thread: handing it to Arrow's threads takes longer than the work.
    """
    path = _checked_path(handle)
    whole = _verified(storage, path, handle)
    options = pa.ipc.IpcReadOptions(use_threads=whole is None)
    with (
        storage.open(path) if whole is None else pa.BufferReader(whole) as file,
        pa.ipc.open_stream(file, options=options) as reader,
    ):
        version = (reader.schema.metadata or {}).get(_VERSION_KEY, b"")
        if version != str(VERSION).encode():
            raise DamagedFile(f"{path} has segment version {version.decode()!r}", hint="upgrade onceward")
        plain = reader.schema.with_metadata(
            {k: v for k, v in reader.schema.metadata.items() if k != _VERSION_KEY} or None
        )
        for batch in reader:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=plain)


def _checked_path(handle: Handle) -> str:
    """The handle's path, if it is one that we could have made: a manifest from elsewhere must not lead us astray."""
    path = str(handle.get("segment"))
    folder, _, name = path.rpartition("/")
    epoch = folder.removeprefix("wal/")
    if not epoch.isdigit() or TransactionName.parse(name.removesuffix(".arrow")) is None:
        raise DamagedFile(f"a manifest names {path!r} as a segment", hint="the manifest was not written by onceward")
    return path


def _verified(storage: Storage, path: str, handle: Handle) -> bytes | None:
    """Refuse a segment that is not the handle's; what is in it, if it is small."""
    try:
        file = storage.open(path)
    except FileNotFoundError:
        raise DamagedFile(
            f"segment {path} is missing, though its epoch is decided and not published",
            hint="restore it from a backup of the checkpoint, or run `onceward rewind` to compute the epoch again",
        ) from None
    sha256, length, first = hashlib.sha256(), 0, b""
    with file:
        while chunk := file.read(_CHUNK):
            first = first or chunk
            sha256.update(chunk)
            length += len(chunk)
    if (length, sha256.hexdigest()) != (handle.get("bytes"), handle.get("sha256")):
        raise DamagedFile(
            f"segment {path} is not what was staged (torn or flipped)",
            hint="restore it from a backup of the checkpoint, or run `onceward rewind` to compute the epoch again",
        )
    return first if len(first) == length else None
