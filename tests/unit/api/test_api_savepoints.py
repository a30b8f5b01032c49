"""Savepoints over the API: asked for, answered at once, taken beside the run, and what the command makes of it."""

from __future__ import annotations

import importlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import Client
from api_world import DELIVERED, TOKEN, World, made
from typer.testing import CliRunner

from onceward.api import ApiConfig
from onceward.api.app import guarded_app
from onceward.api.server import ApiServer
from onceward.cli.app import app
from onceward.errors import ConfigurationError
from onceward.savepoints import read_savepoint, verify_savepoint

JSON = {"Content-Type": "application/json"}
copying = importlib.import_module("onceward.savepoints.take")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    one = made(tmp_path / "checkpoint", on_disk=True)
    yield one
    one.recorder.close()


@pytest.fixture
def client(world: World) -> Client:
    return Client(guarded_app(world.served, ApiConfig(), TOKEN), token=TOKEN)


def asked(client: Client, folder: Path | str) -> tuple[int, dict[str, object]]:
    reply = client.send("POST", "/v1/savepoints", JSON, body=json.dumps({"folder": str(folder)}).encode())
    return reply.status, reply.json


def ended(client: Client, identifier: object) -> dict[str, object]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found: dict[str, object] = client.get(f"/v1/savepoints/{identifier}").json
        if found["state"] != "running":
            return found
        threading.Event().wait(0.01)
    raise AssertionError("it has not ended")


def test_a_savepoint_is_asked_for_and_taken_beside_the_run(client: Client, tmp_path: Path) -> None:
    status, begun = asked(client, tmp_path / "saved")
    assert status == 202
    found = ended(client, begun["id"])
    assert (found["state"], found["error"], found["epoch"]) == ("done", None, DELIVERED - 1)
    path = Path(str(found["path"]))
    assert verify_savepoint(path)[1] == []
    assert read_savepoint(path).id == found["savepoint"]
    assert found["bytes_done"] == found["bytes_total"] != 0
    assert client.get("/v1/savepoints").json["savepoints"] == [found]


def test_one_savepoint_at_a_time_with_its_progress(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, is_copying, copy = threading.Event(), threading.Event(), copying.copy_file

    def waits(*arguments: object) -> object:
        is_copying.set()
        assert goes_on.wait(60)
        return copy(*arguments)

    monkeypatch.setattr(copying, "copy_file", waits)
    _, first = asked(client, tmp_path / "saved")
    assert is_copying.wait(60)
    found = client.get(f"/v1/savepoints/{first['id']}").json
    assert (found["state"], found["bytes_done"], found["path"]) == ("running", 0, None)
    assert found["bytes_total"] > 0
    assert asked(client, tmp_path / "saved")[0] == 409
    goes_on.set()
    assert ended(client, first["id"])["state"] == "done"
    assert asked(client, tmp_path / "saved")[0] == 202


def test_what_cannot_be_taken_says_why(client: Client, tmp_path: Path) -> None:
    for folder in ("relative", tmp_path / "checkpoint" / "in", "/a\0b", ""):
        assert asked(client, folder)[0] == 422
    assert client.send("POST", "/v1/savepoints", JSON, body=b'{"folder":"/x","more":1}').status == 422
    assert client.get("/v1/savepoints/unknown").status == 404
    (tmp_path / "file").write_text("x")
    _, begun = asked(client, tmp_path / "file" / "below")
    found = ended(client, begun["id"])
    assert found["state"] == "failed"
    assert "StorageFailed" in str(found["error"])
    assert list(tmp_path.glob("**/savepoint-*")) == []


def test_the_command_asks_the_driver_and_takes_it_from_the_files_without_one(world: World, tmp_path: Path) -> None:
    server = ApiServer(ApiConfig())
    server.serve(world.served)
    try:
        done = CliRunner().invoke(
            app, ["savepoint", "take", str(tmp_path / "checkpoint"), str(tmp_path / "saved"), "--json"]
        )
        assert done.exit_code == 0, done.output
        by_driver = json.loads(done.stdout)
        assert [one["path"] for one in world.served.savepoints.all()] == [by_driver["path"]]
    finally:
        server.close()
    done = CliRunner().invoke(app, ["savepoint", "take", str(tmp_path / "checkpoint"), str(tmp_path / "saved")])
    assert done.exit_code == 0, done.output
    assert "taken after epoch 2" in done.stdout
    done = CliRunner().invoke(app, ["savepoint", "list", str(tmp_path / "saved"), "--json"])
    assert {one["savepoint"]["epoch"] for one in json.loads(done.stdout)} == {2}
    assert len(json.loads(done.stdout)) == 2


def test_what_the_driver_refuses_is_refused_by_the_command_in_the_same_words(tmp_path: Path) -> None:
    """It was called a failure of the storage, with the exit code that asks for another try."""
    world = made(tmp_path / "checkpoint", on_disk=True)
    shutil.rmtree(tmp_path / "checkpoint" / "onceward" / "settled")
    command = ["savepoint", "take", str(tmp_path / "checkpoint"), str(tmp_path / "saved")]
    server, refused = ApiServer(ApiConfig()), []
    for is_asked in (True, False):
        if is_asked:
            server.serve(world.served)
        with pytest.raises(ConfigurationError) as found:
            CliRunner().invoke(app, command, catch_exceptions=False)
        server.close()
        refused.append((found.type, found.value.message, found.value.hint))
    world.recorder.close()
    assert len(world.served.savepoints.all()) == 1
    assert refused[0] == refused[1]
    assert "no epoch is published yet" in refused[0][1]
