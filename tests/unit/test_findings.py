"""What sinks find in their targets, in the log of a start."""

import logging
from collections.abc import Iterator

import pytest

from onceward.contracts import Finding, Severity, Workload
from onceward.spark.findings import log_findings
from onceward.testing import FakeTransactionalSink, FakeTwoPhaseSink, MemoryTarget


class Broken(FakeTwoPhaseSink):
    """Fails in the middle of its diagnosis, as a target may that goes away just then."""

    def diagnose(self, workload: Workload) -> Iterator[Finding]:
        yield Finding("room", Severity.WARNING, "little", "make some")
        raise ConnectionError("the server has gone away")


class Warns(FakeTransactionalSink):
    def diagnose(self, workload: Workload) -> Iterator[Finding]:
        yield Finding("disk", Severity.WARNING, "nearly full", "add one")
        yield Finding("memory", Severity.OK, "enough")


def test_a_diagnosis_that_fails_neither_stops_a_start_nor_hides_what_other_sinks_find(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="onceward")
    log_findings((Broken(MemoryTarget()), Warns(MemoryTarget())), Workload(slots=1, unpublished_epochs=1))
    failed, found = caplog.records
    assert "diagnosis of its target failed" in failed.getMessage()
    assert "the server has gone away" in caplog.text
    assert found.getMessage() == "sink 'transactional': disk: nearly full (add one)"
