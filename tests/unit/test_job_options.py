"""Options of a job that are of the wrong kind are refused in our own words, before anything is looked at."""

from pathlib import Path
from typing import Any

import pytest

from onceward import Job
from onceward.errors import ConfigurationError
from onceward.sinks import FileSink


def job(folder: Path, **options: Any) -> Job:
    sinks = options.pop("sinks", [FileSink(folder / "out")])
    return Job(name="job", checkpoint=folder, pipeline=lambda spark: None, sinks=sinks, **options)


@pytest.mark.parametrize(
    "trigger", [{"processingTime": "1 second"}, 10, True, "10 secnds", "", "10", "soon", "1.5 minutes"]
)
def test_a_trigger_that_spark_would_not_take_is_refused_with_what_to_write(tmp_path: Path, trigger: Any) -> None:
    with pytest.raises(ConfigurationError, match="trigger") as caught:
        job(tmp_path, trigger=trigger)
    assert '"10 seconds"' in (caught.value.hint or "")


@pytest.mark.parametrize(
    "trigger",
    [
        None,
        "available-now",
        "10 seconds",
        "1 second",
        "500 milliseconds",
        "1.5 seconds",
        "interval 2 hours",
        "1 minute 30 seconds",
    ],
)
def test_a_trigger_that_spark_takes_is_taken(tmp_path: Path, trigger: str | None) -> None:
    assert job(tmp_path, trigger=trigger).trigger == trigger


def test_one_sink_that_is_not_in_a_list_is_refused_with_the_brackets(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a list") as caught:
        job(tmp_path, sinks=FileSink(tmp_path / "out"))
    assert caught.value.hint == "say sinks=[FileSink(...)]"
