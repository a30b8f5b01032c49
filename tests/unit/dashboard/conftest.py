"""A job on disk whose driver can be asked, the same without one, and clients of the dashboard over both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra onceward[api] is not installed")
# The client and the world of the API's own tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "api"))

from api_client import Client
from api_world import World, made
from dashboard_client import client_of

from onceward.dashboard import Place
from onceward.dashboard.places import JobAccess
from onceward.epoch import PublishLimits


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Epochs 0 to 2 are settled, 3 is decided and waits, 4 failed once and is in flight."""
    one = made(tmp_path / "checkpoint", on_disk=True)
    yield one
    one.recorder.close()


@pytest.fixture
def checkpoint(tmp_path: Path, world: World) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def live(world: World, checkpoint: Path) -> Client:
    """In the driver."""
    return client_of(Place(checkpoint, served=world.served))


@pytest.fixture
def stopped(world: World, checkpoint: Path) -> Client:
    """From the files alone. The world's recorder has written all it had to."""
    world.recorder.close()
    return client_of(Place(checkpoint))


@pytest.fixture
def access(world: World) -> JobAccess:
    return JobAccess("job.py", world.harness.context, PublishLimits(), {"output_mode": "append"})


@pytest.fixture
def with_file(world: World, checkpoint: Path, access: JobAccess) -> Client:
    """Stopped, with the job's own file."""
    world.recorder.close()
    return client_of(Place(checkpoint, access))
