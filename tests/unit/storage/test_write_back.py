"""A segment whose early write-back failed must not be taken for durable: the system reports that only once."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from onceward.errors import StorageFailed
from onceward.storage import LocalStorage


def test_a_write_back_that_failed_while_rows_came_in_fails_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", broken)
    file = LocalStorage(tmp_path).open_new("wal/0/segment")
    file.write(b"x" * (5 << 20))
    with pytest.raises(StorageFailed, match="Input/output error"):
        file.close()


def test_what_was_written_back_early_is_all_there(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    file = storage.open_new("wal/0/segment")
    for letter in (b"a", b"b", b"c"):
        file.write(letter * (5 << 20))
    file.close()
    assert storage.read("wal/0/segment") == b"".join(letter * (5 << 20) for letter in (b"a", b"b", b"c"))
