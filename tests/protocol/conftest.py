"""A folder in memory where there is one, so that no test waits for a disk."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# What they assert is the test itself, and is shown like that of one.
pytest.register_assert_rewrite("town", "walks_checkpoint", "walks_damage", "walks_publishing", "walks_target")

_MEMORY = Path("/dev/shm")


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Path]:
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="onceward-", dir=_MEMORY))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _expected_failures_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="onceward")
