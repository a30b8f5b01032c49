"""Arrow has several types for texts and for bytes, which differ only in how they are kept in memory."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt


def is_text(kind: pa.DataType) -> bool:
    """Whether its values are texts."""
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or kind == pa.string_view())


def is_bytes(kind: pa.DataType) -> bool:
    """Whether its values are bytes, as many as they like or always the same number."""
    return bool(
        pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or kind == pa.binary_view()
    )
