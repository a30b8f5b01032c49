"""The few forms of MessagePack that the scripts read: text, nil, false, and arrays of them. Whole columns at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NIL = b"\xc0"
FALSE = b"\xc2"
_TEXT = 0xDB
_ARRAY = b"\xdd"


def packed_column(column: pa.Array) -> pa.Array:
    """Each value of a binary column as packed text, null as nil."""
    lengths = np.asarray(pc.fill_null(pc.binary_length(column), 0)).astype(">u4")
    heads = np.empty((len(column), 5), np.uint8)
    heads[:, 0] = _TEXT
    heads[:, 1:] = lengths.view(np.uint8).reshape(-1, 4)
    before = pa.Array.from_buffers(pa.binary(5), len(column), [None, pa.py_buffer(heads)]).cast(pa.binary())
    joined = pc.binary_join_element_wise(before, column, b"")
    return pc.fill_null(joined, NIL) if joined.null_count else joined


def packed_array(elements: int, body: bytes | memoryview) -> bytes:
    """An array of that many elements, which are packed in `body` already."""
    return b"".join((_ARRAY, elements.to_bytes(4, "big"), body))


def packed_texts(texts: Sequence[str | bytes]) -> bytes:
    """A short array of texts."""
    raw = [text.encode() if isinstance(text, str) else text for text in texts]
    return packed_array(len(raw), b"".join(bytes([_TEXT]) + len(text).to_bytes(4, "big") + text for text in raw))


def bytes_of(column: pa.Array) -> memoryview:
    """The values of a binary column one after the other: the very bytes that Arrow keeps."""
    if not len(column):
        return memoryview(b"")
    offsets = memoryview(column.buffers()[1]).cast("q" if pa.types.is_large_binary(column.type) else "i")
    first, last = offsets[column.offset], offsets[column.offset + len(column)]
    data = column.buffers()[2]
    return memoryview(data)[first:last] if data is not None else memoryview(b"")
