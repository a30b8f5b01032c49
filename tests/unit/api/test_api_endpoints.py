"""What the API says of a run, and what can be asked of it."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from api_client import Client
from api_world import DELIVERED, TOKEN, World, made

from onceward.api import ApiConfig
from onceward.api.app import guarded_app
from onceward.clock import SystemClock
from onceward.contracts.events import Begun, Settled
from onceward.errors import StorageFailed
from onceward.history import HistoryLog, Recorder
from onceward.journal import Retention
from onceward.testing import MemoryStorage


def test_the_status_names_the_run_its_epochs_and_its_sinks(client: Client, world: World, tmp_path: Path) -> None:
    said = client.get("/v1/status").json
    assert (said["name"], said["active"], said["stopping"]) == ("job", True, False)
    assert (said["planned"], said["decided"], said["settled"]) == (DELIVERED, DELIVERED, DELIVERED - 1)
    assert said["checkpoint"] == str(tmp_path)
    assert said["generation"] == world.run.context.job.generation
    assert [sink["guarantee"] for sink in said["sinks"]] == ["exactly-once", "exactly-once"]
    assert [(one["sink"], one["transactions"]) for one in said["in_doubt"]] == [(world.gate.name, 2)]
    assert said["outage"]["why"] == "the gate is shut"


def test_epochs_come_in_pages_the_newest_first_and_those_in_flight_among_them(client: Client) -> None:
    first = client.get("/v1/epochs?limit=2").json
    assert [(one["epoch"], one["outcome"]) for one in first["epochs"]] == [(4, "open"), (4, "failed"), (3, "open")]
    assert first["next_before"] == 3
    second = client.get("/v1/epochs?limit=2&before=3").json
    assert [(one["epoch"], one["outcome"]) for one in second["epochs"]] == [(2, "settled"), (1, "settled")]
    third = client.get(f"/v1/epochs?limit=2&before={second['next_before']}").json
    assert [(one["epoch"], one["outcome"]) for one in third["epochs"]] == [(0, "settled")]
    assert third["next_before"] is None


def test_one_epoch_has_its_attempts_with_phases_slots_and_sinks(client: Client, world: World) -> None:
    world.recorder.close()
    (attempt,) = client.get("/v1/epochs/1").json["attempts"]
    assert attempt["phases"]["barrier"] == 0.016
    assert {"staging", "manifest", "decision", "publish", "settle"} <= set(attempt["phases"])
    assert [slot["rows"] for slot in attempt["slots"]] == [2, 2]
    assert attempt["sinks"][world.gate.name]["rows"] == 4
    assert attempt["state"] == [{"name": "agg", "rows": 2, "bytes": 900, "commit_ms": 0}]
    assert client.get("/v1/epochs/0").json["epoch"] == 0
    again = client.get("/v1/epochs/4").json["attempts"]
    assert [(one["outcome"], one["takeover"]) for one in again] == [("failed", 0), ("open", 1)]


def test_an_epoch_that_nobody_knows_is_not_found(client: Client) -> None:
    reply = client.get("/v1/epochs/99")
    assert (reply.status, reply.json["error"]) == (404, "NotFound")


def test_what_was_open_at_the_end_is_there_once(client: Client, world: World) -> None:
    world.recorder.close()
    found = [(one["epoch"], one["outcome"]) for one in client.get("/v1/epochs").json["epochs"]]
    assert found == [(4, "open"), (4, "failed"), (3, "open"), (2, "settled"), (1, "settled"), (0, "settled")]


def test_a_record_that_is_written_just_now_is_there_once(world: World) -> None:
    """In flight and on disk at once: the one that has ended counts, wherever it is."""
    history = HistoryLog(MemoryStorage())
    recorder = Recorder(history, SystemClock(), keep=Retention(epochs=100), every_s=60)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    recorder(Begun(0, now, now, 0, "exactly-once"))
    recorder(Begun(1, now, now, 0, "exactly-once"))
    history.write(recorder.in_flight())
    recorder(Settled(0, now, {}))
    history.write([one for one in recorder.in_flight() if one.outcome == "settled"])
    found = replace(world.served, recorder=recorder).newest(10)
    assert [(one.epoch, one.outcome) for one in found] == [(1, "open"), (0, "settled")]


def test_the_summary_has_percentiles(client: Client, world: World) -> None:
    world.recorder.close()
    said = client.get("/v1/summary").json
    assert (said["settled"], said["failed"], said["rows"]) == (3, 1, 12)
    assert said["distributions"]["rows"]["p50"] == 4
    assert said["distributions"]["barrier"] == {
        "count": 3, "min": 0.016, "mean": 0.016, "max": 0.016, "p50": 0.016, "p90": 0.016, "p99": 0.016,
    }  # fmt: skip


def test_targets_are_asked_only_when_someone_wants_it_fresh(client: Client, world: World) -> None:
    known = client.get("/v1/transactions").json
    assert (known["sinks"][0]["transactions"], known["transactions"], world.looks) == (2, None, [])
    fresh = client.get("/v1/transactions?fresh=true").json
    assert [(one["epoch"], one["verdict"]) for one in fresh["transactions"]] == [(3, "commit"), (3, "commit")]
    assert world.looks == [1]


def test_one_look_at_the_targets_at_a_time(world: World) -> None:
    """A target that hangs keeps one thread of the server, not all of them."""
    looking, go_on = threading.Event(), threading.Event()

    def hang() -> list[object]:
        looking.set()
        assert go_on.wait(60)
        return []

    object.__setattr__(world.served, "look", hang)
    client = Client(guarded_app(world.served, ApiConfig(), TOKEN), token=TOKEN)
    first = threading.Thread(target=client.get, args=("/v1/transactions?fresh=true",))
    first.start()
    assert looking.wait(60)
    second = client.get("/v1/transactions?fresh=true")
    assert (second.status, second.headers["retry-after"]) == (429, "5")
    assert client.get("/v1/status").status == 200
    go_on.set()
    first.join(60)
    assert client.get("/v1/transactions?fresh=true").status == 200


def test_a_target_that_is_away_is_said_and_is_no_mistake_of_ours(client: Client, world: World) -> None:
    def away() -> list[object]:
        raise ConnectionError("refused")

    object.__setattr__(world.served, "look", away)
    reply = client.get("/v1/transactions?fresh=true")
    assert (reply.status, reply.json["message"]) == (503, "a target does not answer: ConnectionError: refused")


def test_what_waits_is_told_against_the_limit(client: Client, world: World) -> None:
    said = client.get("/v1/publish").json
    assert (said["unpublished"], said["limit"], said["held_back"]) == (1, 10, False)
    assert said["outage"]["sink"] == world.gate.name
    object.__setattr__(world.served, "max_unpublished", -1)
    assert client.get("/v1/publish").json["held_back"]


def test_a_stop_is_asked_for_and_answered_at_once(client: Client, world: World) -> None:
    reply = client.send("POST", "/v1/stop")
    assert (reply.status, reply.json) == (202, {"stopping": True})
    assert world.run.stops == 1
    assert client.get("/v1/status").json["stopping"]


def test_the_log_level_is_read_and_set(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("onceward").setLevel(logging.INFO)
    assert client.get("/v1/log-level").json == {"level": "INFO"}
    body, kind = b'{"level": "DEBUG"}', {"Content-Type": "application/json"}
    assert client.send("PUT", "/v1/log-level", kind, body=body).json == {"level": "DEBUG"}
    assert logging.getLogger("onceward").level == logging.DEBUG
    assert "the log level is now DEBUG; it was INFO" in caplog.text
    for wrong in (b'{"level": "LOUD"}', b"{}", b"[", b'{"level": "DEBUG", "also": 1}'):
        assert client.send("PUT", "/v1/log-level", kind, body=wrong).status == 422


def test_a_storage_that_fails_is_said_and_the_server_goes_on(client: Client, world: World) -> None:
    world.run.fails = StorageFailed("the disk is gone", hint="mount it")
    for path in ("/v1/status", "/metrics"):
        reply = client.get(path)
        assert (reply.status, reply.json["error"], reply.json["hint"]) == (503, "StorageFailed", "mount it")
    assert client.get("/alive").status == 200


def test_a_run_without_history_tells_what_is_in_flight(tmp_path: Path) -> None:
    world = made(tmp_path, delivered=1)
    world.recorder.close()
    for name in world.harness.storage.names("history"):
        world.harness.storage.delete(f"history/{name}")
    client = Client(guarded_app(world.served, ApiConfig(), TOKEN), token=TOKEN)
    assert [one["epoch"] for one in client.get("/v1/epochs").json["epochs"]] == [2, 1]
