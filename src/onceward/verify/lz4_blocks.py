"""The frames in which Spark writes deltas, snapshots and changelogs of its state, unless told of another codec.

Each block: `LZ4Block`, a byte for method and level, the compressed and the plain length (little-endian), 28 bits of the
xxHash32 of the plain bytes, the bytes. A block of length zero ends the stream. Of a file that a checksum vouches for
only the heads are looked at; of any other every block is unpacked and its hash computed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

import pyarrow as pa

_MAGIC: Final = b"LZ4Block"
_HEAD: Final = struct.Struct("<8sBiiI")
_RAW, _LZ4 = 0x10, 0x20
_MOST_BYTES: Final = 1 << 25
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF
_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1


class TornBlocksError(ValueError):
    """It is not a whole stream of such blocks; the text says what is wrong."""


def check_blocks(file: BinaryIO, *, unpacks: bool) -> None:
    """Look at every block to the end mark; `TornBlocksError` where one is not right."""
    for _ in _blocks(file, unpacks=unpacks):
        pass


def first_bytes(file: BinaryIO, most: int) -> bytes:
    """The plain bytes from the beginning, at most so many."""
    found = b""
    for block in _blocks(file, unpacks=True):
        found += block
        if len(found) >= most:
            break
    return found[:most]


def packed(data: bytes) -> bytes:
    """A whole stream of one block, not worth compressing."""
    head = _HEAD.pack(_MAGIC, _RAW, len(data), len(data), xxh32(data) & 0x0FFFFFFF)
    return head + data + _HEAD.pack(_MAGIC, _RAW, 0, 0, 0)


def _blocks(file: BinaryIO, *, unpacks: bool) -> Iterator[bytes]:
    """The plain blocks; empty ones where they are not unpacked."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    at = 0
    while True:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise TornBlocksError(f"it ends within a block's head, at byte {at + len(head)}")
        magic, token, packed, plain, expected = _HEAD.unpack(head)
        method = token & 0xF0
        if (
            magic != _MAGIC
            or method not in (_RAW, _LZ4)
            or not (0 <= packed <= _MOST_BYTES and 0 <= plain <= _MOST_BYTES)
        ):
            raise TornBlocksError(f"there is no block at byte {at}")
        at += _HEAD.size + packed
        if at > size:
            raise TornBlocksError(f"it ends within a block, at byte {size} of {at}")
        if plain == 0:
            return
        if unpacks:
            yield _unpacked(file.read(packed), plain, expected, method)
        else:
            file.seek(packed, os.SEEK_CUR)
            yield b""


def _unpacked(data: bytes, plain: int, expected: int, method: int) -> bytes:
    try:
        found = data if method == _RAW else pa.Codec("lz4_raw").decompress(data, plain, asbytes=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TornBlocksError("a block cannot be unpacked") from error
    if len(found) != plain or xxh32(found) & 0x0FFFFFFF != expected:
        raise TornBlocksError("a block's hash does not match its content")
    return bytes(found)


def xxh32(data: bytes, seed: int = _SEED) -> int:
    """xxHash, 32 bits, by its published definition."""
    at, size = 0, len(data)
    if size >= 16:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        for words in struct.iter_unpack("<4I", data[: size & ~15]):
            lanes = [
                _rotated((lane + word * _P2) & _MASK, 13) * _P1 & _MASK for lane, word in zip(lanes, words, strict=True)
            ]
        one, two, three, four = lanes
        found = _rotated(one, 1) + _rotated(two, 7) + _rotated(three, 12) + _rotated(four, 18)
        at = size & ~15
    else:
        found = seed + _P5
    found = (found + size) & _MASK
    while at + 4 <= size:
        found = _rotated((found + int.from_bytes(data[at : at + 4], "little") * _P3) & _MASK, 17) * _P4 & _MASK
        at += 4
    for byte in data[at:]:
        found = _rotated((found + byte * _P5) & _MASK, 11) * _P1 & _MASK
    found = (found ^ (found >> 15)) * _P2 & _MASK
    found = (found ^ (found >> 13)) * _P3 & _MASK
    return found ^ (found >> 16)


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK
