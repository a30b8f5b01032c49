"""One file from one place to another in one pass: read, summed, written. Never through a link.

Beside a job the disk writes each piece before the next is copied: else the job would wait for gigabytes when it forces
its own few bytes to the disk.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self, TypeVar

from onceward.savepoints.document import SavedFile
from onceward.storage import write_back

_PIECE: Final = 1 << 18
"""Read and written at once. In pieces of a megabyte a copy took twice as long on a virtual machine, all of it in the
kernel: it takes memory in larger blocks then, presumably those that were given back to the host."""
_REST_BYTES: Final = 1 << 20
"""Beside a job, after so many, and at the end of a file, the disk writes them and the copy rests."""
_LAST: Final = 19

Count = Callable[[int], object]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Pace:
    """How much of a machine a copy takes: so many threads, each of them at work for that share of its time."""

    workers: int
    share: float = 1.0

    def rest_after(self, worked_s: float) -> float:
        """How many seconds to leave to others."""
        return worked_s * (1 / self.share - 1)

    def hurried(self) -> Self:
        """For the next attempt, after one for which the job was too fast."""
        return replace(self, share=min(1.0, 2 * self.share))


FULL_SPEED: Final = Pace(min(2, os.cpu_count() or 1))
"""In a process of its own, of whose cores it takes what nobody else wants. Reading, summing and writing let go of the
interpreter's lock."""
BESIDE_A_JOB: Final = Pace(1, 0.2)
"""In the process of a job that runs, which is to lose less than a tenth of its speed."""


def of_each(work: Callable[[T], R], items: Sequence[T], workers: int) -> list[R]:
    """What `work` makes of each, in their order, by so many threads; the first failure ends all of it."""
    if workers == 1:
        return [work(one) for one in items]
    with ThreadPoolExecutor(workers, thread_name_prefix="onceward-copy", initializer=_give_way) as pool:
        begun = [pool.submit(work, one) for one in items]
        try:
            return [one.result() for one in begun]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _give_way() -> None:
    """The calling thread comes after all others of this machine. Not one in the process of a job: it would be held up
    in the middle of a step of the interpreter, and the job with it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LAST)


def copy_file(source: int, target: Path, count: Count, pace: Pace = FULL_SPEED) -> SavedFile:
    """All bytes of an open file into a new one; how many they were, and their CRC-32."""
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    began, rested_at = time.monotonic(), 0

    def rest(at: int) -> None:
        nonlocal began, rested_at
        write_back(handle, rested_at, at - rested_at)
        time.sleep(pace.rest_after(time.monotonic() - began))
        began, rested_at = time.monotonic(), at

    def take(piece: memoryview, at: int) -> None:
        _write(handle, piece)
        if pace.share < 1 and at + len(piece) - rested_at >= _REST_BYTES:
            rest(at + len(piece))

    try:
        copied = _pass(source, take, count)
        if pace.share < 1 and copied.size > rested_at:
            rest(copied.size)
        return copied
    finally:
        os.close(handle)


def sum_file(source: int, count: Count) -> SavedFile:
    """The same without a copy."""
    return _pass(source, lambda piece, at: None, count)


def _pass(source: int, take: Callable[[memoryview, int], object], count: Count) -> SavedFile:
    buffer = bytearray(_PIECE)
    view = memoryview(buffer)
    size = crc = 0
    while read := os.readv(source, [buffer]):
        piece = view[:read]
        crc = zlib.crc32(piece, crc)
        take(piece, size)
        size += read
        count(read)
    return SavedFile(size, crc)


def _write(handle: int, piece: memoryview) -> None:
    while len(piece):
        piece = piece[os.write(handle, piece) :]


@contextlib.contextmanager
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
