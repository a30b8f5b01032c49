"""A real file system in a file: copied without unmounting, the copy is what a power loss leaves of it. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from onceward.testing.faults import Faults

T = TypeVar("T")
SIZE = 24 << 20


class MountRefused(Exception):
    """This machine does not let this user mount an image."""


def make_image(path: Path, size: int = SIZE) -> None:
    """An empty ext4."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        raise MountRefused("an ext4 image needs root and mkfs.ext4")
    with path.open("wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(path)], check=True)


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """The image at the folder. What its journal has is replayed, as after any unclean end."""
    folder.mkdir()
    answer = subprocess.run(["mount", "-o", "loop", str(image), str(folder)], capture_output=True, text=True)
    if answer.returncode:
        raise MountRefused(f"an ext4 image cannot be mounted here: {answer.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


class PowerLosses(Faults):
    """Copies the image before every write of a driver's life: as if the power had been lost just then."""

    def __init__(self, image: Path, copies: Path) -> None:
        super().__init__()
        self._image, self._copies = image, copies
        self.taken: list[tuple[Path, str]] = []

    def perform(
        self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
    ) -> T:
        """See `Faults.perform`."""
        if writes:
            self.take(f"before {what}")
        return call()

    def take(self, when: str) -> None:
        """One copy. Only what the disk has been given is in the image's file; the rest is in the kernel's memory."""
        copy = self._copies / f"{len(self.taken)}.img"
        subprocess.run(["cp", "--sparse=always", str(self._image), str(copy)], check=True)
        self.taken.append((copy, when))
