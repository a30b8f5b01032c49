"""Files of a checkpoint as they stand, each read once in a look, and checked against the checksums beside them.

Hadoop keeps `.NAME.crc` beside every file that Spark writes on a local disk: `crc\\0`, the chunk's size (512), and a
CRC-32 of each chunk. Spark reads through it: what does not agree ends a start. Where there is none, or its first eight
bytes are not those, Hadoop passes over it, and so does this.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

_MAGIC: Final = b"crc\0"
_HEADER: Final = 8
_PIECE: Final = 1 << 20
_MOST_CHUNK: Final = 1 << 26
"""Hadoop takes any, and holds one in memory: with a flipped bit here it may go on all the same, or not."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One file. `problem` is what is wrong with its bytes; `is_vouched_for` says that a checksum beside it agrees."""

    exists: bool
    size: int = 0
    problem: str | None = None
    is_vouched_for: bool = False

    @property
    def is_sound(self) -> bool:
        """Whether it is there, and nothing speaks against it."""
        return self.exists and self.problem is None


MISSING: Final = Checked(exists=False)


@dataclass(slots=True)
class Files:
    """Reads under one root. A file that vanished while it was read counts as missing: whoever needs it looks again."""

    root: Path
    _checked: dict[str, Checked] = field(default_factory=dict)
    _names: dict[str, frozenset[str]] = field(default_factory=dict)

    def names(self, folder: str) -> frozenset[str]:
        """What is in a folder; nothing where there is none. Hidden files are Hadoop's, or unfinished."""
        if folder not in self._names:
            try:
                found = os.listdir(self.root / folder)
            except (FileNotFoundError, NotADirectoryError):
                found = []
            self._names[folder] = frozenset(name for name in found if not name.startswith("."))
        return self._names[folder]

    def is_folder(self, path: str) -> bool:
        """Whether there is such a folder now."""
        return (self.root / path).is_dir()

    def check(self, path: str) -> Checked:
        """Its size, and whether its bytes are those that were written, as far as anything tells."""
        if path not in self._checked:
            self._checked[path] = self._check(path)
        return self._checked[path]

    def read(self, path: str) -> bytes | None:
        """All of it, None where it is not there."""
        try:
            return (self.root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def open(self, path: str) -> BinaryIO:
        """For reading in pieces; `FileNotFoundError` where it is not there."""
        return (self.root / path).open("rb")

    def sums_beside(self, path: str) -> tuple[int, bytes] | None:
        """The chunk's size and the checksums of a file; None where Hadoop goes by none."""
        folder, _, name = path.rpartition("/")
        data = self.read(f"{folder}/.{name}.crc" if folder else f".{name}.crc")
        if data is None or len(data) < _HEADER or not data.startswith(_MAGIC):
            return None
        (chunk,) = struct.unpack(">i", data[4:_HEADER])
        # A chunk that is not one: then nothing agrees, as for Hadoop.
        return (chunk if 0 < chunk <= _MOST_CHUNK else 1, data[_HEADER:])

    def _check(self, path: str) -> Checked:
        name = path.rpartition("/")[2]
        expected = self.sums_beside(path)
        try:
            with self.open(path) as file:
                if expected is None:
                    return Checked(True, file.seek(0, os.SEEK_END))
                chunk, sums = expected
                found, size = _sums_of(file, chunk)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return MISSING
        if found == sums:
            return Checked(True, size, is_vouched_for=True)
        return Checked(True, size, f"its content does not match the checksums in .{name}.crc")


def _sums_of(file: BinaryIO, chunk: int) -> tuple[bytes, int]:
    sums: list[int] = []
    size = 0
    for piece in _pieces(file, max(1, _PIECE // chunk) * chunk):
        view = memoryview(piece)
        sums += [zlib.crc32(view[start : start + chunk]) for start in range(0, len(view), chunk)]
        size += len(view)
    return struct.pack(f">{len(sums)}I", *sums), size


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while piece := file.read(size):
        yield piece
