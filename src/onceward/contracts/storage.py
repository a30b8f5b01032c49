"""Where manifests, segments and markers are kept: the few operations the protocol needs, and their promises."""

from __future__ import annotations

from typing import BinaryIO, Protocol


class Storage(Protocol):
    """A folder of files with write-once creation. Picklable: executors get a copy.

    Paths are relative, with `/` between folders. Whatever fails for a reason of the storage (full, read-only, gone)
    raises `StorageFailed`.
    """

    def create(self, path: str, data: bytes) -> bool:
        """Create `path` with exactly `data`, durably, if nothing is there; say whether this call created it.

        Atomic: no reader ever sees a part, and of two racing creators one is told False. Nothing is overwritten.
        """
        ...

    def read(self, path: str) -> bytes | None:
        """The file's content, None when there is no such file."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names in a folder, in no order; empty when there is no such folder. Unfinished creations are hidden."""
        ...

    def open_new(self, path: str) -> BinaryIO:
        """A new file to stream into; durable once `close` has returned. A torn one may stay behind after a crash."""
        ...

    def open(self, path: str) -> BinaryIO:
        """An existing file to read; FileNotFoundError when there is none."""
        ...

    def where(self, path: str) -> str:
        """How a person would find it: for messages. Asks nobody."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file or a folder with all in it. That it is gone already is fine.

        Not durable by itself: a power loss may bring it back, until something is created in the same folder or `sync`
        has returned.
        """
        ...

    def sync(self, folder: str) -> None:
        """Make what was removed from the folder stay removed."""
        ...
