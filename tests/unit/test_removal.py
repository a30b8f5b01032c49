"""A checkpoint is removed only if nothing of it is needed any more."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from onceward.sinks import FileSink
from onceward.spark.removal import remove_checkpoint
from onceward.storage import LocalStorage
from onceward.testing import Behaviour, DiesAt, DirectoryLogs, Faults, Harness, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA


def world(folder: Path) -> Harness:
    sink = FileSink(folder / "out", format="jsonl", name="files")
    sink.check(SCHEMA, output_mode="append")
    return Harness(
        SinkUnderTest(sink, lambda: []),
        source=Source(ends=(4, 8)),
        storage=LocalStorage(folder / "checkpoint" / "onceward"),
        logs=DirectoryLogs(folder / "checkpoint"),
    )


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        (DiesAt("log commit 1", after=True), "epoch 1 is decided and not settled"),
        (DiesAt("log commit 1"), "is staged and not aborted"),
    ],
    ids=["decided", "staged"],
)
def test_a_checkpoint_with_something_unsettled_or_staged_stays(
    tmp_path: Path, faults: Faults, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    harness = world(tmp_path)
    harness.life(faults)
    assert not remove_checkpoint(tmp_path / "checkpoint", harness.context())
    assert why in caplog.text
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "out"]
    harness.drain()
    assert remove_checkpoint(tmp_path / "checkpoint", harness.context())
    assert os.listdir(tmp_path) == ["out"]


def test_a_target_that_does_not_answer_keeps_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = world(tmp_path)
    harness.drain()
    context = harness.context()

    def away(self: FileSink, job: object) -> object:
        raise ConnectionError("the target is away")

    monkeypatch.setattr(FileSink, "pending", away)
    assert not remove_checkpoint(tmp_path / "checkpoint", context)
    assert "the target is away" in caplog.text


def test_a_crash_leaves_the_whole_checkpoint_or_rubbish_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies as soon as it begins to delete: by then the checkpoint has another name."""
    harness = world(tmp_path)
    harness.drain(Behaviour())
    context = harness.context()

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onceward.spark.removal.shutil.rmtree", die)
    with pytest.raises(KeyboardInterrupt):
        remove_checkpoint(tmp_path / "checkpoint", context)
    assert sorted(os.listdir(tmp_path)) == [f"checkpoint.deleted-{context.run}", "out"]


def test_a_checkpoint_that_cannot_be_renamed_stays_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    harness = world(tmp_path)
    harness.drain()

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("onceward.spark.removal.os.rename", busy)
    assert not remove_checkpoint(tmp_path / "checkpoint", harness.context())
    assert "busy" in caplog.text
    assert (tmp_path / "checkpoint" / "commits" / "1").exists()
