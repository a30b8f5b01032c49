"""By hand from the page: what will happen is said first, the rules are those of the command, who and why is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_client import Client, Reply
from api_world import DELIVERED, World
from dashboard_client import JSON, client_of

from onceward.admin import Verdict, in_doubt
from onceward.dashboard import Place
from onceward.dashboard.places import JobAccess
from onceward.identity import TransactionName
from onceward.journal import Kind, Resolutions
from onceward.storage import LocalStorage


def posted(client: Client, checkpoint: Path, what: str, **body: Any) -> Reply:
    path = f"/api/jobs/{Place(checkpoint).id}/transactions/{what}"
    return client.send("POST", path, JSON, body=json.dumps(body).encode())


def listed(client: Client, checkpoint: Path) -> dict[str, Any]:
    found = client.get(f"/api/jobs/{Place(checkpoint).id}/transactions").json
    return dict(found)


def test_what_is_listed_is_what_the_command_lists(with_file: Client, checkpoint: Path, world: World) -> None:
    found = listed(with_file, checkpoint)
    said = in_doubt(world.harness.context())
    assert found["source"] == "job"
    assert [(one["transaction"], one["verdict"], one["why"]) for one in found["transactions"]] == [
        (one.transaction, one.verdict.value, one.why) for one in said
    ]
    assert {one.verdict for one in said} == {Verdict.COMMIT}


def test_a_decided_transaction_is_committed_after_it_was_said_what_follows(
    with_file: Client, checkpoint: Path, world: World
) -> None:
    world.gate.is_open = True
    name = listed(with_file, checkpoint)["transactions"][0]["transaction"]
    proposal = posted(with_file, checkpoint, "propose", action="commit", transaction=name).json
    assert f"epoch {DELIVERED} is decided" in proposal["lines"][0]
    assert world.harness.context().watermark() == DELIVERED - 1, "nothing has happened yet"
    reply = posted(with_file, checkpoint, "act", action="commit", transaction=name)
    assert reply.json == {"done": "committed", "settled": DELIVERED}
    assert not in_doubt(world.harness.context())
    assert listed(with_file, checkpoint)["transactions"] == []


def test_what_must_not_be_aborted_is_refused_whatever_the_page_sends(
    with_file: Client, checkpoint: Path, world: World
) -> None:
    name = listed(with_file, checkpoint)["transactions"][0]["transaction"]
    for what in ("propose", "act"):
        reply = posted(with_file, checkpoint, what, action="abort", transaction=name)
        assert reply.status == 409
        assert "must not be aborted" in reply.json["message"]
    assert posted(with_file, checkpoint, "act", action="commit", transaction="nobody's").status == 409
    assert posted(with_file, checkpoint, "act", action="drop", transaction=name).status == 422
    assert len(in_doubt(world.harness.context())) == 2


@pytest.fixture
def orphan(world: World) -> str:
    """What a lost attempt of a settled epoch has left in the target."""
    name = in_doubt(world.harness.context())[0].transaction
    handle = next(one for one in world.gate.pending_of_job(world.served.context.job.name))
    parsed = TransactionName.parse(name)
    assert parsed is not None
    left = str(replace(parsed, epoch=1))
    world.gate.target.transactions[left] = world.gate.target.transactions[str(handle["transaction"])]
    return left


def test_an_orphan_is_aborted_with_who_and_why(with_file: Client, checkpoint: Path, world: World, orphan: str) -> None:
    (one,) = [one for one in listed(with_file, checkpoint)["transactions"] if one["transaction"] == orphan]
    assert (one["verdict"], one["actions"]) == ("abort", ["abort"])
    silent = posted(with_file, checkpoint, "act", action="abort", transaction=orphan, because="  ")
    assert (silent.status, silent.json["message"]) == (409, "nobody has said why")
    assert orphan in world.gate.target.transactions
    done = posted(with_file, checkpoint, "act", action="abort", transaction=orphan, because="left over", who="ada")
    assert done.json["done"] == "aborted"
    assert orphan not in world.gate.target.transactions
    (said,) = Resolutions(LocalStorage(checkpoint / "onceward")).history()
    assert (said.kind, said.transactions, said.because) == (Kind.ABORT_TRANSACTIONS, (orphan,), "left over")
    assert said.by == "ada (me@here, dashboard)"
    (action,) = with_file.get(f"/api/jobs/{Place(checkpoint).id}/lives").json["actions"]
    assert (action["by"], action["because"]) == (said.by, "left over")


def test_while_a_driver_runs_nothing_is_committed_beside_it(world: World, checkpoint: Path, access: JobAccess) -> None:
    client = client_of(Place(checkpoint, access, world.served))
    found = listed(client, checkpoint)
    assert found["source"] == "driver"
    assert all(one["actions"] == [] for one in found["transactions"] if one["verdict"] == "commit")
    reply = posted(client, checkpoint, "act", action="commit", transaction=found["transactions"][0]["transaction"])
    assert reply.status == 409
    assert "a driver runs" in reply.json["message"]


def test_without_the_jobs_file_the_manifests_say_what_should_wait(stopped: Client, checkpoint: Path) -> None:
    found = listed(stopped, checkpoint)
    assert found["source"] == "files"
    assert {one["epoch"] for one in found["transactions"]} == {DELIVERED}
    assert all(one["verdict"] == "commit" and not one["actions"] for one in found["transactions"])
    name = found["transactions"][0]["transaction"]
    assert posted(stopped, checkpoint, "act", action="commit", transaction=name).status == 409


def test_a_target_that_cannot_be_asked_is_said_to_be(checkpoint: Path, world: World) -> None:
    def broken() -> Any:
        raise OSError("no route to <b>host</b>")

    from onceward.epoch import PublishLimits

    client = client_of(Place(checkpoint, JobAccess("job.py", broken, PublishLimits())))
    world.recorder.close()
    found = listed(client, checkpoint)
    assert found["error"] == "OSError: no route to <b>host</b>"
