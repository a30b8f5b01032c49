"""A log line is one JSON object, with what it is about as fields: nobody has to read them out of its message."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onceward.clock import SystemClock
from onceward.contracts import Handle, Outcome, RetryLater
from onceward.contracts.events import (
    Begun,
    Decided,
    Delivered,
    EngineReported,
    Event,
    Failed,
    PreCommitted,
    Retried,
    Settled,
    Staged,
)
from onceward.epoch import PublisherThread, PublishLimits, Watchdog
from onceward.errors import PublishFailed
from onceward.history import log_event
from onceward.identity import SinkName
from onceward.job.facade import _log_plan
from onceward.logs import JsonFormatter, about
from onceward.recovery import Plan, TakeOver
from onceward.testing import Behaviour, FakeTwoPhaseSink, Harness, MemoryTarget, SinkUnderTest, Source

log = logging.getLogger("onceward")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Lines:
    """What is logged meanwhile, as the objects that it is."""

    def __init__(self) -> None:
        self.text = io.StringIO()

    def __call__(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.getvalue().splitlines()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    found = Lines()
    handler = logging.StreamHandler(found.text)
    handler.setFormatter(JsonFormatter())
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield found
    log.removeHandler(handler)
    log.setLevel(before)


def test_a_line_has_time_level_logger_message_and_what_it_is_about(lines: Lines) -> None:
    with about(job="pv", epoch=7), about(sink="files:pv"):
        log.warning('it says "%s"\nand more', "no", extra={"transaction": "ow1_x"})
    log.info("about nothing")
    first, second = lines()
    assert datetime.fromisoformat(first.pop("time")).tzinfo is not None
    assert first == {
        "level": "WARNING",
        "logger": "onceward",
        "message": 'it says "no"\nand more',
        "job": "pv",
        "epoch": 7,
        "sink": "files:pv",
        "transaction": "ow1_x",
    }
    assert set(second) == {"time", "level", "logger", "message"}


def test_what_a_line_says_of_itself_counts_more_than_what_is_going_on(lines: Lines) -> None:
    with about(epoch=7, sink="a"):
        log.info("an older one", extra={"epoch": 0})
    assert [(one["epoch"], one["sink"]) for one in lines()] == [(0, "a")]


def test_a_traceback_stays_on_its_line(lines: Lines) -> None:
    try:
        raise ValueError("no\nway")
    except ValueError:
        log.warning("it failed", exc_info=True)
    (line,) = lines()
    assert "ValueError: no\nway" in line["exception"]


def test_a_call_under_the_watchdog_knows_what_it_is_about(lines: Lines) -> None:
    """It runs in another thread."""
    with about(epoch=3):
        Watchdog(SystemClock(), 60).call("a", "commit", lambda: log.info("inside"), error=PublishFailed)
    assert lines()[0]["epoch"] == 3


def test_lines_of_the_publisher_name_job_epoch_and_sink(lines: Lines) -> None:
    """Also those of a sink that knows of no epoch."""

    class Chatty(FakeTwoPhaseSink):
        def commit(self, handle: Handle) -> Outcome:
            log.info("committing", extra={"transaction": handle["transaction"]})
            return super().commit(handle) if is_open else RetryLater("not yet", after_s=9.0)

    target, is_open = MemoryTarget(), False
    sink = Chatty(target)
    harness = Harness(SinkUnderTest(sink, lambda: target.rows), source=Source(ends=(4,), keys=2))
    harness.life(behaviour=Behaviour(publishes=lambda epoch: False))
    is_open = True
    publisher = PublisherThread(harness.context(), PublishLimits())
    publisher.start()
    publisher.close()
    said = [line for line in lines() if line["message"] == "committing"]
    assert {(line.get("job"), line["epoch"], line["sink"]) for line in said[-2:]} == {("job", 0, sink.name)}
    assert all(line["transaction"].startswith("ow1_") for line in said)


@pytest.mark.parametrize(
    "event",
    [
        Begun(1, NOW, NOW, 2, "exactly-once"),
        Staged(1, NOW, ()),
        PreCommitted(1, NOW),
        Decided(1, NOW),
        Retried(1, NOW, SinkName("a"), "no"),
        Delivered(1, NOW, SinkName("a"), NOW, 1, 4),
        Settled(1, NOW, {}),
        Failed(1, NOW, "E", "no"),
        EngineReported(1, NOW),
    ],
    ids=lambda event: type(event).__name__,
)
def test_every_event_is_a_line_at_the_level_debug_and_none_above_it(event: Event, lines: Lines) -> None:
    log_event(event)
    (line,) = lines()
    assert (line["level"], line["logger"], line["epoch"]) == ("DEBUG", "onceward.epochs", 1)
    assert line.get("sink") == (event.sink if isinstance(event, Retried | Delivered) else None)
    log.setLevel(logging.INFO)
    log_event(event)
    assert len(lines()) == 1


def test_what_ends_the_command_is_a_line_too_and_nothing_else_is_printed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "onceward", "run", str(tmp_path / "nowhere.py"), "--log", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [json.loads(text) for text in done.stderr.splitlines()]
    assert (line["level"], line["exit_code"]) == ("ERROR", 2)
    assert line["message"].startswith("ConfigurationError: there is no file")
    assert "FILE" in line["hint"]


def test_a_line_of_the_recovery_says_which_epoch_it_is_about(lines: Lines) -> None:
    _log_plan(Plan((TakeOver(7),)))
    (line,) = lines()
    assert line["message"].startswith("recovery: epoch 7: undecided")
    assert line["epoch"] == 7
