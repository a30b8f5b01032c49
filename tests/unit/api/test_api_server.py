"""The server itself, on loopback: the file by which it is found, its client, its end."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from api_world import World

from onceward.api import ApiConfig, Discovery, Driver, NoDriver, find_driver, read_discovery
from onceward.api.discovery import place, remove_discovery, write_discovery
from onceward.api.server import ApiServer
from onceward.errors import ConfigurationError

FOUND = Discovery("http://127.0.0.1:1", "secret-token", os.getpid(), socket.gethostname(), "", "run")


@pytest.fixture
def server(world: World) -> Iterator[ApiServer]:
    one = ApiServer(ApiConfig())
    one.serve(world.served)
    yield one
    one.close()


def driver_of(checkpoint: Path) -> Driver:
    found = find_driver(checkpoint)
    assert isinstance(found, Driver), found
    return found


def test_a_client_finds_it_by_the_checkpoint_and_asks(server: ApiServer, world: World, tmp_path: Path) -> None:
    driver = driver_of(tmp_path)
    assert driver.get("/v1/status")["name"] == "job"
    driver.stop()
    assert world.run.stops == 1


def test_only_its_owner_can_read_the_file_whatever_the_umask(world: World, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        one = ApiServer(ApiConfig())
        one.serve(world.served)
    finally:
        os.umask(before)
    file = place(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(file.parent) == ["api.json"]
    document = json.loads(file.read_text())
    assert set(document) == {"url", "token", "pid", "host", "checkpoint", "run"}
    assert (document["pid"], document["url"]) == (os.getpid(), one.url)
    one.close()


def test_it_ends_with_the_run_and_takes_its_file_along(world: World, tmp_path: Path) -> None:
    one = ApiServer(ApiConfig())
    one.serve(world.served)
    driver = driver_of(tmp_path)
    closing = threading.Timer(0, one.close)
    closing.start()
    assert driver.await_end(60)
    closing.join(60)
    assert find_driver(tmp_path) == NoDriver("no driver with an API runs on this checkpoint")
    assert not [thread for thread in threading.enumerate() if thread.name == "onceward-api"]
    one.close()


def test_who_waits_for_an_end_that_does_not_come_is_told(server: ApiServer, tmp_path: Path) -> None:
    assert not driver_of(tmp_path).await_end(0.3)


def test_nothing_is_bound_beyond_loopback(server: ApiServer) -> None:
    port = int(server.url.rpartition(":")[2])
    listening = [
        line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"
    ]
    assert [one for one in listening if one.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]


def test_a_port_that_is_taken_is_told_before_anything_moves(server: ApiServer) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ApiServer(ApiConfig(port=int(server.url.rpartition(":")[2])))
    assert "cannot listen on 127.0.0.1" in refused.value.message


def test_a_proxy_of_the_environment_does_not_see_the_token(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    assert driver_of(tmp_path).get("/v1/status")["active"]


def test_wrong_requests_over_the_wire_are_refused(server: ApiServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{server.url}/v1/status", timeout=30)
    assert refused.value.code == 401
    refused.value.close()
    port = int(server.url.rpartition(":")[2])
    for garbage in (b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"GET /v1/status HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
            line.sendall(garbage)
            assert re.match(rb"HTTP/1.1 (400|403)", line.recv(100)), garbage
    assert urllib.request.urlopen(f"{server.url}/alive", timeout=30).read() == b'{"alive":true}'


def test_a_token_is_neither_logged_nor_printed(world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    one = ApiServer(ApiConfig())
    one.serve(world.served)
    found = read_discovery(tmp_path)
    assert found is not None
    driver_of(tmp_path).get("/v1/status")
    one.close()
    assert one.url in caplog.text
    assert found.token not in caplog.text
    assert found.token not in repr(found)


def test_what_a_dead_driver_left_is_seen_for_what_it_is(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait(60)
    write_discovery(tmp_path, replace(FOUND, pid=dead.pid, checkpoint=str(tmp_path)))
    assert find_driver(tmp_path) == NoDriver(f"the driver that ran here, process {dead.pid}, is gone")


def test_a_process_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """Its number was given to another, or it hangs: the connection tells."""
    write_discovery(tmp_path, replace(FOUND, checkpoint=str(tmp_path)))
    found = find_driver(tmp_path)
    assert isinstance(found, NoDriver)
    assert found.pid == os.getpid()


def test_another_server_on_the_port_of_a_dead_driver_is_not_taken_for_it(server: ApiServer, tmp_path: Path) -> None:
    mine = read_discovery(tmp_path)
    assert mine is not None
    write_discovery(tmp_path, replace(mine, run="another run"))
    assert isinstance(find_driver(tmp_path), NoDriver)
    write_discovery(tmp_path, replace(mine, token="another-token-altogether"))
    assert isinstance(find_driver(tmp_path), NoDriver)


def test_a_copy_of_a_checkpoint_does_not_lead_to_the_driver_of_the_original(
    server: ApiServer, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`onceward stop COPY` must not stop the original."""
    copy = tmp_path_factory.mktemp("copy")
    (copy / "onceward").mkdir()
    (copy / "onceward" / "api.json").write_bytes(place(tmp_path).read_bytes())
    found = find_driver(copy)
    assert isinstance(found, NoDriver)
    assert "copy" in found.why


def test_a_run_removes_only_its_own_file(tmp_path: Path) -> None:
    later = replace(FOUND, run="later")
    write_discovery(tmp_path, later)
    remove_discovery(tmp_path, FOUND)
    assert read_discovery(tmp_path) == later
    remove_discovery(tmp_path, later)
    assert not place(tmp_path).exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"url": 1}', json.dumps({**dict.fromkeys(Discovery.__slots__, "x"), "pid": "1"})]
)
def test_a_file_that_is_none_is_nothing(tmp_path: Path, text: str) -> None:
    place(tmp_path).parent.mkdir()
    place(tmp_path).write_text(text)
    assert read_discovery(tmp_path) is None
