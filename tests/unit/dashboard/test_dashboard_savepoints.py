"""Savepoints on the page: those that lie there, also of a stopped job, and one taken of it without a driver."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from api_client import Client, Reply
from api_world import DELIVERED, World
from dashboard_client import JSON, client_of

from onceward.dashboard import DashboardConfig, Place, Places
from onceward.savepoints import verify_savepoint


def listed(client: Client, checkpoint: Path) -> dict[str, Any]:
    return dict(client.get(f"/api/jobs/{Place(checkpoint).id}/savepoints").json)


def asked(client: Client, checkpoint: Path, folder: str) -> Reply:
    body = json.dumps({"folder": folder}).encode()
    return client.send("POST", f"/api/jobs/{Place(checkpoint).id}/savepoints", JSON, body=body)


def taken(client: Client, checkpoint: Path, folder: Path) -> Path:
    """Asked for, and waited for as the page does."""
    begun = asked(client, checkpoint, str(folder)).json
    for _ in range(6000):
        (task,) = (one for one in listed(client, checkpoint)["tasks"] if one["id"] == begun["id"])
        if task["state"] != "running":
            assert task["state"] == "done", task
            return Path(task["path"])
        threading.Event().wait(0.01)
    raise AssertionError("it has not ended")


def test_a_stopped_jobs_savepoint_is_taken_without_a_driver_and_lies_there(
    stopped: Client, checkpoint: Path, tmp_path: Path
) -> None:
    before = listed(stopped, checkpoint)
    assert (before["savepoints"], before["tasks"], before["why_not"]) == ([], [], "")
    path = taken(stopped, checkpoint, tmp_path / "elsewhere")
    assert verify_savepoint(path)[1] == []
    (found,) = listed(stopped, checkpoint)["savepoints"]
    assert (found["path"], found["epoch"], found["problem"]) == (str(path), DELIVERED - 1, None)


def test_a_dashboard_that_is_started_later_finds_it_in_the_usual_folder(
    live: Client, world: World, checkpoint: Path
) -> None:
    path = taken(live, checkpoint, Path(f"{checkpoint}-savepoints"))
    later = client_of(Place(checkpoint))
    assert [one["path"] for one in listed(later, checkpoint)["savepoints"]] == [str(path)]
    assert listed(later, checkpoint)["tasks"] == []


def test_it_finds_others_where_it_is_told_to_look_and_only_those_of_the_job(
    stopped: Client, checkpoint: Path, tmp_path: Path
) -> None:
    path = taken(stopped, checkpoint, tmp_path / "shelf")
    place = Place(checkpoint)
    told = client_of(place, places=Places([place], savepoints=[tmp_path / "shelf", tmp_path / "nowhere"]))
    assert [one["path"] for one in listed(told, checkpoint)["savepoints"]] == [str(path)]
    empty = tmp_path / "other"
    other = client_of(Place(empty), places=Places([Place(empty)], savepoints=[tmp_path / "shelf"]))
    assert listed(other, empty)["savepoints"] == []
    assert listed(other, empty)["why_not"] == "the job has not begun yet"


def test_a_damaged_one_is_shown_as_such(stopped: Client, checkpoint: Path) -> None:
    path = taken(stopped, checkpoint, Path(f"{checkpoint}-savepoints"))
    (path / "savepoint.json").write_text("onceward savepoint 1 nonsense\n{}")
    (found,) = listed(stopped, checkpoint)["savepoints"]
    assert "damaged" in found["problem"]


@pytest.mark.parametrize("folder", ["here", "../up", "~/x", " ", "/a\0b", "s3://bucket/x"])
def test_a_folder_that_means_something_else_to_each_host_is_refused(
    stopped: Client, checkpoint: Path, folder: str
) -> None:
    reply = asked(stopped, checkpoint, folder)
    assert reply.status == 409
    assert "absolute" in reply.json["message"]


def test_none_is_taken_into_the_checkpoint_itself_nor_by_who_may_only_look(stopped: Client, checkpoint: Path) -> None:
    assert asked(stopped, checkpoint, str(checkpoint / "inside")).status == 409
    only_looks = client_of(Place(checkpoint), DashboardConfig(read_only=True))
    assert asked(only_looks, checkpoint, "/tmp/x").status == 403
    assert listed(only_looks, checkpoint)["why_not"] == "this dashboard is read-only"
