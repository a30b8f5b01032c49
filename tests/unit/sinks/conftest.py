"""What the tests of every sink need: a job, and contexts of its task attempts."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from onceward.contracts import SlotContext
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, RunId, SinkName, fingerprint_of

Contexts = Callable[..., SlotContext]


@pytest.fixture
def job() -> JobIdentity:
    return JobIdentity(JobName("page views"), Generation("aaaaaaaa"))


@pytest.fixture
def fingerprint() -> Fingerprint:
    return fingerprint_of(b"offsets of the epoch")


@pytest.fixture
def context(job: JobIdentity, fingerprint: Fingerprint) -> Contexts:
    def make(sink: SinkName, *, epoch: int = 7, slot: int = 0, attempt: int = 1, job: JobIdentity = job) -> SlotContext:
        return SlotContext(
            job=job,
            sink=sink,
            epoch=epoch,
            takeover=0,
            slot=slot,
            attempt=attempt,
            run=RunId("rrrrrr"),
            timestamp=datetime(2024, 5, 1, tzinfo=UTC),
            fingerprint=fingerprint,
        )

    return make
