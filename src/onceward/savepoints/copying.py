"""One file from one place to another in one pass: read, summed, written. Never through a link."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from onceward.savepoints.document import SavedFile

_PIECE: Final = 1 << 20

Count = Callable[[int], object]
T = TypeVar("T")
R = TypeVar("R")
WORKERS: Final = min(2, os.cpu_count() or 1)
"""Where nothing else is at work: reading, summing and writing let go of the interpreter's lock."""


def of_each(work: Callable[[T], R], items: Sequence[T], workers: int) -> list[R]:
    """What `work` makes of each, in their order, by so many threads; the first failure ends all of it."""
    if workers == 1:
        return [work(one) for one in items]
    with ThreadPoolExecutor(workers, thread_name_prefix="onceward-copy") as pool:
        begun = [pool.submit(work, one) for one in items]
        try:
            return [one.result() for one in begun]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def copy_file(source: int, target: Path, count: Count) -> SavedFile:
    """All bytes of an open file into a new one; how many they were, and their CRC-32."""
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        return _pass(source, lambda piece: _write(handle, piece), count)
    finally:
        os.close(handle)


def sum_file(source: int, count: Count) -> SavedFile:
    """The same without a copy."""
    return _pass(source, lambda piece: None, count)


def _pass(source: int, take: Callable[[memoryview], object], count: Count) -> SavedFile:
    buffer = bytearray(_PIECE)
    view = memoryview(buffer)
    size = crc = 0
    while read := os.readv(source, [buffer]):
        piece = view[:read]
        crc = zlib.crc32(piece, crc)
        take(piece)
        size += read
        count(read)
    return SavedFile(size, crc)


def _write(handle: int, piece: memoryview) -> None:
    while len(piece):
        piece = piece[os.write(handle, piece) :]


@contextmanager
def opened(root: Path, path: str) -> Iterator[int]:
    """A plain file below a root, step by step, so that no link on the way is followed; `OSError` for anything else."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        *folders, name = path.split("/")
        for one in folders:
            inner = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Without waiting: a pipe under that name would hold us up for ever.
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a plain file")
        yield handle
    finally:
        os.close(handle)
