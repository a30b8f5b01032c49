"""`onceward stop` and `onceward status` beside a driver that answers, one that does not end, and none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_world import DELIVERED, World, made

from onceward.api import ApiConfig
from onceward.api.server import ApiServer
from onceward.cli.status import status
from onceward.cli.stop import stop
from onceward.errors import ConfigurationError, EpochTimedOut


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[World, ApiServer]]:
    world, server = made(tmp_path, on_disk=True), ApiServer(ApiConfig())
    server.serve(world.served)
    yield world, server
    server.close()
    world.recorder.close()


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    return dict(json.loads(capsys.readouterr().out))


def test_status_has_what_the_driver_knows(
    watched: tuple[World, ApiServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, server = watched
    status(str(tmp_path), json=True, rows=10)
    found = printed(capsys)
    assert (found["planned"], found["decided"], found["settled"]) == (DELIVERED, DELIVERED, DELIVERED - 1)
    driver = found["driver"]
    assert isinstance(driver, dict)
    assert (driver["active"], driver["stopping"], driver["unpublished"], driver["limit"]) == (True, False, 1, 10)
    assert driver["outage"]["why"] == "the gate is shut"
    sinks = found["sinks"]
    assert isinstance(sinks, list)
    assert {sink["name"]: sink["in_doubt"] for sink in sinks}[world.gate.name] == 2
    status(str(tmp_path), rows=10)
    said = capsys.readouterr().out
    assert "from the running driver: process" in said
    assert f"{world.gate.name} does not take epoch 3: the gate is shut" in said
    server.close()
    status(str(tmp_path), rows=10)
    assert "from files: no running driver answers" in capsys.readouterr().out


def test_stop_waits_until_the_run_has_ended(
    watched: tuple[World, ApiServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, server = watched
    asked = threading.Event()
    world.run.request_stop = asked.set

    def end() -> None:
        assert asked.wait(60)
        world.gate.is_open = True
        world.harness.drain()
        server.close()

    ending = threading.Thread(target=end)
    ending.start()
    stop(str(tmp_path), timeout=60, json=True)
    ending.join(60)
    found = printed(capsys)
    assert (found["stopped"], found["decided"], found["settled"]) == (True, DELIVERED, DELIVERED)


def test_stop_waits_no_longer_than_it_was_told(watched: tuple[World, ApiServer], tmp_path: Path) -> None:
    with pytest.raises(EpochTimedOut) as late:
        stop(str(tmp_path), timeout=0.3)
    assert "has not ended" in late.value.message
    assert watched[0].run.stops == 1


def test_stop_says_what_to_do_where_nobody_answers(watched: tuple[World, ApiServer], tmp_path: Path) -> None:
    watched[1].close()
    with pytest.raises(ConfigurationError) as refused:
        stop(str(tmp_path), timeout=1)
    assert "SIGTERM" in (refused.value.hint or "")
    with pytest.raises(ConfigurationError):
        stop(str(tmp_path / "elsewhere"), timeout=1)
