"""The API against its own description: whatever OpenAPI allows, and what it does not, gets an answer that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from api_world import World, made
from hypothesis import HealthCheck, Phase, given, settings

from onceward.api import ApiConfig, Discovery, read_discovery
from onceward.api.app import build_app
from onceward.api.server import ApiServer

# The same requests in every run: what fails once fails again. What fails is not made smaller, which would take minutes.
BOUNDED = settings(
    max_examples=12,
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
MODES = list(schemathesis.GenerationMode)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Discovery]]:
    checkpoint = tmp_path_factory.mktemp("fuzz")
    world, server = made(checkpoint), ApiServer(ApiConfig())
    server.serve(world.served)
    found = read_discovery(checkpoint)
    assert found is not None
    yield world, found
    server.close()
    world.recorder.close()


def for_each_request(world: World, mode: Any, check: Callable[[Any], object]) -> dict[str, int]:
    """Make up requests for every operation, and check each; how many there were of each operation."""
    schema = schemathesis.openapi.from_dict(build_app(world.served).openapi())
    made_up: dict[str, int] = {}

    def each(case: Any) -> None:
        made_up[case.operation.label] = made_up.get(case.operation.label, 0) + 1
        check(case)

    for result in schema.get_all_operations():
        operation = result.ok()
        has_parameters = list(operation.query) or list(operation.path_parameters) or list(operation.body)
        if has_parameters or mode is schemathesis.GenerationMode.POSITIVE:
            BOUNDED(given(case=operation.as_strategy(generation_mode=mode))(each))()
    return made_up


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.value))
def test_whatever_is_sent_with_the_token_is_answered_as_described(mode: Any, fuzzed: tuple[World, Discovery]) -> None:
    """No 500; only codes, types and bodies that are described; nothing wrong is taken; the token is not optional."""
    world, found = fuzzed
    token = {"Authorization": f"Bearer {found.token}"}
    made_up = for_each_request(world, mode, lambda case: case.call_and_validate(base_url=found.url, headers=token))
    assert {"PUT /v1/log-level", "GET /v1/epochs", "GET /v1/epochs/{epoch}"} <= set(made_up)
    assert world.run.stops > 0


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.value))
def test_whatever_is_sent_without_it_or_from_elsewhere_is_refused(mode: Any, fuzzed: tuple[World, Discovery]) -> None:
    world, found = fuzzed
    stops = world.run.stops
    token = {"Authorization": f"Bearer {found.token}"}
    elsewhere = [{"Origin": "https://evil.example"}, {"Host": "evil.example"}]

    def refused(case: Any) -> None:
        for headers in ({}, {"Authorization": "Bearer guessed"}) if case.path != "/alive" else ():
            assert case.call(base_url=found.url, headers=headers).status_code in (400, 401), case
        for headers in elsewhere:
            assert case.call(base_url=found.url, headers=token | headers).status_code in (400, 403), case

    assert for_each_request(world, mode, refused)
    assert world.run.stops == stops
