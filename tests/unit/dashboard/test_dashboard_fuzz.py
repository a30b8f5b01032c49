"""The dashboard's endpoints under whatever their own description allows, and does not: an answer, never a failure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest
import requests
import schemathesis
from api_client import Client, Reply
from api_world import TOKEN, World, made
from dashboard_client import JSON, client_of
from hypothesis import HealthCheck, Phase, given, settings

from onceward.dashboard import Place
from onceward.dashboard.places import JobAccess
from onceward.dashboard.reader import StateReader
from onceward.epoch import PublishLimits

BOUNDED = settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
MODES = list(schemathesis.GenerationMode)
ANSWERED = {200, 400, 401, 404, 405, 409, 411, 413, 415, 422}
# One never ends, and the other would write wherever it is told to: its folders are refused in a test of their own.
LEFT_OUT = {"GET /api/events", "POST /api/jobs/{job}/savepoints"}


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Client, Place]:
    """With the job's file, so that all that a person may do is within reach; state is read by a program that ends."""
    checkpoint = tmp_path_factory.mktemp("fuzz") / "checkpoint"
    world = made(checkpoint, on_disk=True)
    world.recorder.close()
    place = Place(checkpoint, JobAccess("job.py", world.harness.context, PublishLimits()))
    return world, client_of(place, reader=StateReader((sys.executable, "-c", ""))), place


def for_each_request(client: Client, place: Place, mode: Any, check: Callable[[Any], object]) -> set[str]:
    """Make up requests for every operation, every other one about the job that is there; the operations."""
    schema = schemathesis.openapi.from_dict(client._app._app.openapi())
    made_up: dict[str, int] = {}

    def each(case: Any) -> None:
        count = made_up[case.operation.label] = made_up.get(case.operation.label, 0) + 1
        if "job" in (case.path_parameters or {}) and count % 2:
            case.path_parameters["job"] = place.id
        check(case)

    for result in schema.get_all_operations():
        operation = result.ok()
        has_parameters = list(operation.query) or list(operation.path_parameters) or list(operation.body)
        can_be_wrong = has_parameters or mode is schemathesis.GenerationMode.POSITIVE
        if operation.label not in LEFT_OUT and can_be_wrong:
            BOUNDED(given(case=operation.as_strategy(generation_mode=mode))(each))()
    return set(made_up)


def sent(client: Client, case: Any, headers: dict[str, str], token: str | None) -> Reply:
    """As a browser's bytes would come in."""
    prepared = requests.Request(**case.as_transport_kwargs(base_url="http://127.0.0.1:8080")).prepare()
    path, _, query = (prepared.path_url or "/").partition("?")
    body = prepared.body or b""
    data = body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass")
    mode = {"Content-Type": prepared.headers["Content-Type"]} if "Content-Type" in prepared.headers else {}
    return client.send(
        prepared.method or "GET", f"{unquote(path)}?{query}", {**JSON, **mode, **headers}, body=data, token=token
    )


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.value))
def test_whatever_is_sent_with_the_key_is_answered(mode: Any, fuzzed: tuple[World, Client, Place]) -> None:
    world, client, place = fuzzed
    before = dict(world.gate.target.transactions)

    def answered(case: Any) -> None:
        reply = sent(client, case, {}, TOKEN)
        assert reply.status in ANSWERED, (case, reply.status, reply.body[:300])
        assert b"Traceback" not in reply.body

    found = for_each_request(client, place, mode, answered)
    assert {"POST /api/jobs/{job}/transactions/act", "GET /api/jobs/{job}/epochs"} <= found
    assert dict(world.gate.target.transactions) == before, "nobody has named a transaction that is there"


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.value))
def test_whatever_is_sent_without_it_or_from_elsewhere_is_refused(
    mode: Any, fuzzed: tuple[World, Client, Place]
) -> None:
    _, client, place = fuzzed
    elsewhere = [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]

    def refused(case: Any) -> None:
        if case.operation.path != "/api/login":
            assert sent(client, case, {}, None).status == 401, case
            assert sent(client, case, {"Cookie": "onceward-8080=guessed"}, "guessed").status == 401, case
        for headers in elsewhere:
            assert sent(client, case, headers, TOKEN).status == 403, case

    assert for_each_request(client, place, mode, refused)
