"""Hadoop's checksums of a file, put together to the CRC-32 of the whole.

Beside a file of Spark's stands a CRC-32 of every 512 bytes. Two CRC-32 combine into that of both pieces by a linear
step which depends only on the length of the second one; so the sums of equal chunks fold in pairs, all at once. One
pass over the bytes then serves the copy, our own checksum, and the check against Hadoop's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL: Final = 0xEDB88320
_ONE: Final = 1 << 31
"""The polynomial 1: zlib keeps the lowest power in the highest bit."""


def whole_crc(sums: bytes, chunk: int, size: int) -> int | None:
    """The CRC-32 of `size` bytes whose chunks have these sums (big-endian); None where they are not that many."""
    count = -(-size // chunk)
    if len(sums) != 4 * count:
        return None
    if count == 0:
        return 0
    found = np.frombuffer(sums, ">u4").astype(np.uint32)
    last = size - (count - 1) * chunk
    before = _folded(found[:-1], chunk)
    return _times(_power(8 * last), before) ^ int(found[-1])


def _folded(found: NDArray[np.uint32], chunk: int) -> int:
    """Of equal chunks. An empty piece has the CRC 0, so that zeros in front change nothing."""
    length = chunk
    while len(found) > 1:
        if len(found) % 2:
            found = np.concatenate([np.zeros(1, np.uint32), found])
        tables = _tables(8 * length)
        left = found[0::2]
        found = found[1::2] ^ tables[0][left & 255] ^ tables[1][left >> 8 & 255]
        found ^= tables[2][left >> 16 & 255] ^ tables[3][left >> 24]
        length *= 2
    return int(found[0]) if len(found) else 0


@lru_cache(maxsize=64)
def _tables(bits: int) -> tuple[NDArray[np.uint32], ...]:
    """The step over so many bits for each value of each byte of a CRC."""
    power = _power(bits)
    of_bits = [_times(power, 1 << bit) for bit in range(32)]
    tables = []
    for byte in range(4):
        table = np.zeros(256, np.uint32)
        for bit in range(8):
            table[1 << bit : 2 << bit] = table[: 1 << bit] ^ np.uint32(of_bits[8 * byte + bit])
        tables.append(table)
    return tuple(tables)


@lru_cache(maxsize=4096)
def _power(bits: int) -> int:
    """x to that power, modulo the polynomial."""
    found, square = _ONE, 1 << 30
    while bits:
        if bits & 1:
            found = _times(square, found)
        square = _times(square, square)
        bits >>= 1
    return found


def _times(a: int, b: int) -> int:
    """The product of two polynomials, modulo the polynomial of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
