"""One world for the tests that only look, and a client that has the token."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra onceward[api] is not installed")

from api_client import Client
from api_world import TOKEN, World, made

from onceward.api import ApiConfig
from onceward.api.app import guarded_app


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    one = made(tmp_path)
    yield one
    one.recorder.close()


@pytest.fixture
def client(world: World) -> Client:
    return Client(guarded_app(world.served, ApiConfig(), TOKEN), token=TOKEN)


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """The level of the log is as it was."""
    log = logging.getLogger("onceward")
    before = log.level
    yield
    log.setLevel(before)
