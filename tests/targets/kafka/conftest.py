"""Topics of its own for every test, on the session's broker."""

from __future__ import annotations

import logging

import pytest
from topics import KafkaWorkspace

from onceward.testing.servers import KafkaServer


@pytest.fixture
def workspace(kafka: KafkaServer) -> KafkaWorkspace:
    return KafkaWorkspace(kafka)


@pytest.fixture(autouse=True)
def _expected_failures_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="onceward")
