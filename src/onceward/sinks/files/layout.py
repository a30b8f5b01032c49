"""Where a file sink keeps what, as pure functions: partition folders, staged names, and final names that are receipts.

::

    <path>/.onceward/<transaction>-<part>.<extension>       staged; readers of files skip hidden folders
    <path>/<column>=<value>/part-<transaction>-<fingerprint>-<part>of<parts>.<extension>    published

A final name says how many files its slot has, for people who look; one that is there proves the slot's decision.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from onceward.contracts import Json
from onceward.errors import TargetRefused
from onceward.identity import TransactionName

HIDDEN = ".onceward"
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
LONGEST_NAME = 255

# The characters that Hive and Spark escape, and NUL, which no file system takes.
_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
_FINAL = re.compile(r"part-(?P<transaction>ow1_[0-9a-z_]+)-(?P<fingerprint>[^-]+)-\d+of(?P<parts>\d+)\..+")
_STAGED = re.compile(r"(?P<transaction>ow1_[0-9a-z_]+)-\d+\..+")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file of a slot: its name in the hidden folder, its place in the target, and what is in it."""

    staged: str
    final: str
    rows: int
    bytes: int

    def as_json(self) -> dict[str, Json]:
        """As it stands in the handle."""
        return {"staged": self.staged, "final": self.final, "rows": self.rows, "bytes": self.bytes}


class FinalName(NamedTuple):
    """What a published file's name tells. A tuple, because a start makes one for every file there is."""

    transaction: str
    fingerprint: str
    parts: int

    @classmethod
    def parse(cls, name: str) -> FinalName | None:
        """The meaning of `name`, or None when it is not one of ours."""
        match = _FINAL.fullmatch(name)
        return cls(match["transaction"], match["fingerprint"], int(match["parts"])) if match else None


def final_name(transaction: str, fingerprint: str, *, part: int, parts: int, extension: str) -> str:
    """The name under which a file becomes visible."""
    return f"part-{transaction}-{fingerprint}-{part}of{parts}.{extension}"


def staged_name(transaction: str, *, part: int, extension: str) -> str:
    """The name under which a file waits."""
    return f"{transaction}-{part}.{extension}"


def transaction_of(staged: str) -> TransactionName | None:
    """Whose file this is in the hidden folder; None when it is not one of ours."""
    match = _STAGED.fullmatch(staged)
    return TransactionName.parse(match["transaction"]) if match else None


def escaped(text: str) -> str:
    """`text` as Hive and Spark write it in a folder's name."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def folders(columns: Sequence[tuple[str, pa.Array]]) -> list[str]:
    """The partition folder of each row, `column=value/column=value`."""
    levels = [[_folder(name, text) for text in _texts(values)] for name, values in columns]
    return ["/".join(level) for level in zip(*levels, strict=True)]


def _folder(column: str, text: str | None) -> str:
    # Spark, too, files the empty string under the default partition: a folder's name cannot tell it from null.
    folder = f"{escaped(column)}={escaped(text) if text else DEFAULT_PARTITION}"
    if len(os.fsencode(folder)) > LONGEST_NAME:
        raise TargetRefused(
            f"a value of partition column {column!r} makes a folder's name of {len(os.fsencode(folder))} bytes",
            hint=f"file systems take {LONGEST_NAME}; partition by something shorter, such as a hash of it",
        )
    return folder


def _texts(values: pa.Array) -> list[str | None]:
    """Partition values as Spark spells them."""
    kind = values.type
    if pt.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in values.to_pylist()]
    if pt.is_timestamp(kind):
        local = pc.local_timestamp(values) if kind.tz is not None else values
        return list(pc.replace_substring_regex(local.cast(pa.string()), r"\.?0*$", "").to_pylist())
    return list(values.cast(pa.string()).to_pylist())


def is_plain(kind: pa.DataType) -> bool:
    """Whether values of this type can name a folder and be read back from it."""
    return bool(
        pt.is_string(kind)
        or pt.is_large_string(kind)
        or pt.is_integer(kind)
        or pt.is_boolean(kind)
        or pt.is_date(kind)
        or pt.is_timestamp(kind)
        or pt.is_decimal(kind)
    )
