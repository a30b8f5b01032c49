"""What the page is told equals what the checkpoint, the targets and the driver say; one shape, running or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from api_client import Client
from api_world import DELIVERED, TOKEN, World
from dashboard_client import client_of

from onceward.dashboard import DashboardConfig, Place
from onceward.history import HistoryLog, phases
from onceward.storage import LocalStorage


def only(client: Client) -> dict[str, Any]:
    (job,) = client.get("/api/jobs").json["jobs"]
    return dict(job)


def test_a_running_job_and_a_stopped_one_have_one_shape(live: Client, stopped: Client) -> None:
    running, still = only(live), only(stopped)
    assert running.keys() == still.keys()
    assert (running["live"], still["live"]) == (True, False)
    assert running["id"] == still["id"]
    for view in (
        "",
        "/epochs",
        "/timeline",
        "/summary",
        "/settings",
        "/lives",
        "/transactions",
        "/epochs/1",
        "/savepoints",
    ):
        one, other = (client.get(f"/api/jobs/{running['id']}{view}").json for client in (live, stopped))
        assert one.keys() == other.keys(), view


def test_the_overview_says_what_the_checkpoint_says(live: Client, stopped: Client, world: World) -> None:
    for client in (live, stopped):
        job = only(client)
        assert (job["decided"], job["settled"], job["unpublished"]) == (DELIVERED, DELIVERED - 1, 1)
        assert job["job"] == world.served.context.job.name
    assert only(live)["limit"] == 10
    assert only(live)["in_doubt"][0]["transactions"] == 2


def test_a_target_that_takes_nothing_holds_the_job_back_and_is_named(live: Client, world: World) -> None:
    standing = only(live)["standing"]
    assert standing["kind"] == "held-back"
    assert world.gate.name in standing["why"]
    assert "the gate is shut" in standing["why"]


def test_a_start_that_would_be_refused_is_foretold(stopped: Client) -> None:
    """The harness has made this checkpoint under another directory's name, so it counts as a copy."""
    job = only(stopped)
    assert job["standing"]["kind"] in ("stopped", "seen")
    plan = stopped.get(f"/api/jobs/{job['id']}/lives").json["next_start"]
    assert plan["refusal"]["error"] == "CheckpointCopied"
    assert "--accept copy" in plan["refusal"]["hint"]


def test_the_table_has_every_attempt_the_newest_first_and_those_in_flight(live: Client) -> None:
    job = only(live)["id"]
    found = live.get(f"/api/jobs/{job}/epochs").json
    shown = [(row["epoch"], row["outcome"]) for row in found["epochs"]]
    assert shown[:2] == [(4, "open"), (4, "failed")]
    assert [row for row in shown if row[1] == "settled"] == [(2, "settled"), (1, "settled"), (0, "settled")]
    failed = live.get(f"/api/jobs/{job}/epochs?outcome=failed").json
    assert [(row["epoch"], row["error"], row["why"]) for row in failed["epochs"]] == [(4, "OSError", "no space")]
    unusual = live.get(f"/api/jobs/{job}/epochs?unusual=true&last=3").json
    assert all(row["unusual"] for row in unusual["epochs"])
    assert live.get(f"/api/jobs/{job}/epochs?first=1&last=1").json["total"] == 1


def test_one_epoch_is_shown_with_its_slots_sinks_and_transactions(stopped: Client, checkpoint: Path) -> None:
    job = only(stopped)["id"]
    found = stopped.get(f"/api/jobs/{job}/epochs/1").json
    (record,) = HistoryLog(LocalStorage(checkpoint / "onceward")).read(first=1, last=1)
    (attempt,) = found["attempts"]
    assert attempt["slot"]["rows"] == [slot.rows for slot in record.slots]
    assert attempt["phases"] == phases(record)
    (size,) = attempt["state"]
    assert (size["kind"], size["rows"], size["bytes"], size["commit_ms"]) == ("agg", 2, 900, 0)
    assert found["state"] == "settled"
    staged = {sink["name"]: len(sink["transaction"]) for sink in found["sinks"]}
    assert set(staged) == set(record.sinks)
    waiting = stopped.get(f"/api/jobs/{job}/epochs/{DELIVERED}").json
    assert waiting["state"] == "decided"
    assert all(sink["transaction"] for sink in waiting["sinks"])


def test_the_summary_agrees_with_the_command(stopped: Client, checkpoint: Path) -> None:
    from onceward.history import summary

    found = stopped.get(f"/api/jobs/{only(stopped)['id']}/summary").json
    told = summary(HistoryLog(LocalStorage(checkpoint / "onceward")).read())
    assert (found["settled"], found["failed"], found["rows"]) == (told.settled, told.failed, told.rows)
    assert found["distributions"]["duration"]["p90"] == told.distributions["duration"].p90


def test_nothing_is_known_of_an_epoch_to_come_nor_of_another_job(stopped: Client) -> None:
    job = only(stopped)["id"]
    assert stopped.get(f"/api/jobs/{job}/epochs/4711").status == 404
    assert stopped.get("/api/jobs/0123456789").status == 404
    assert stopped.get("/api/jobs/..%2f..").status in (404, 422)


def test_a_damaged_checkpoint_is_shown_as_such(checkpoint: Path, stopped: Client) -> None:
    identity = checkpoint / "onceward" / "identity.json"
    identity.write_bytes(identity.read_bytes()[:-3])
    job = only(stopped)
    assert job["standing"]["kind"] == "refused"
    assert "verify" in job["standing"]["command"]


def test_a_job_that_has_not_begun_is_there_all_the_same(tmp_path: Path) -> None:
    client = client_of(Place(tmp_path / "to-come"))
    job = only(client)
    assert (job["begun"], job["decided"], job["job"]) == (False, -1, "to-come")
    assert client.get(f"/api/jobs/{job['id']}").status == 200


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a\u202eb", "'\"&;"])
def test_hostile_texts_travel_as_they_are(tmp_path: Path, name: str) -> None:
    """The page puts them in as text; nothing on the way makes markup of them."""
    place = tmp_path / "x"
    (place / "onceward").mkdir(parents=True)
    from onceward.contracts.events import StateSize
    from onceward.history import EpochRecord
    from onceward.identity import RunId

    record = EpochRecord(0, RunId("r"), "settled", state=(StateSize(name, 1, 1),), error=name, why=name)
    HistoryLog(LocalStorage(place / "onceward")).write([record])
    client = client_of(Place(place))
    reply = client.get(f"/api/jobs/{Place(place).id}/epochs/0")
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert json.loads(reply.body)["attempts"][0]["error"] == name


def test_neither_token_nor_address_of_a_target_is_told(live: Client, with_file: Client) -> None:
    for client in (live, with_file):
        job = only(client)["id"]
        for view in ("", "/epochs", "/timeline", "/summary", "/settings", "/lives", "/transactions", "/epochs/1"):
            assert TOKEN.encode() not in client.get(f"/api/jobs/{job}{view}").body, view


def test_the_stream_tells_all_jobs_first(live: Client) -> None:
    """It never ends by itself: the client goes away after the first event."""
    app = live._app

    async def first() -> str:
        stream = app._app.state.shown.stream
        async for text in stream.events():
            return str(text)
        return ""

    import asyncio

    text = asyncio.run(first())
    assert text.startswith("event: jobs\ndata: ")
    assert json.loads(text.partition("data: ")[2])["changed"][0]["id"] == only(live)["id"]


def test_the_stream_ends_with_the_server(live: Client) -> None:
    """So that no browser that waits for news keeps it from ending."""

    async def told() -> list[str]:
        stream = live._app._app.state.shown.stream
        events = stream.events()
        await anext(events)
        live._app.close()
        return [text async for text in events]

    import asyncio

    assert asyncio.run(told()) == []


def test_a_prefix_is_taken_off_whether_the_proxy_does_or_not(checkpoint: Path) -> None:
    client = client_of(Place(checkpoint), DashboardConfig(prefix="/team/onceward"))
    for path in ("/team/onceward/api/jobs", "/api/jobs"):
        assert client.get(path).status == 200
    assert client.get("/team/onceward/").status == 200
    assert client.get("/team/onceward").headers["location"] == "/team/onceward/"


def test_in_the_driver_the_page_stands_beside_the_api_with_a_token_of_its_own(world: World, checkpoint: Path) -> None:
    from onceward.api import ApiConfig
    from onceward.api.app import guarded_app
    from onceward.api.server import _Router
    from onceward.dashboard.mounted import PATH, mounted_page

    mounted = mounted_page(checkpoint, "another-token-for-the-page", None)
    both = Client(_Router(guarded_app(world.served, ApiConfig(), TOKEN), PATH, mounted.app(world.served)))
    assert both.get(f"{PATH}/").status == 200
    assert both.get(PATH).headers["location"] == f"{PATH}/"
    entered = both.get(f"{PATH}/?token=another-token-for-the-page")
    assert f"Path={PATH}/" in entered.headers["set-cookie"]
    cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
    assert both.get(f"{PATH}/api/jobs", cookie).json["jobs"][0]["live"] is True
    assert both.get("/v1/status", cookie).status == 401, "the page's key does not open the API"
    assert both.get("/v1/status", {"Authorization": f"Bearer {TOKEN}"}).status == 200
    assert both.get(f"{PATH}/api/jobs", {"Authorization": f"Bearer {TOKEN}"}).status == 401
