"""The probe for shared folders where nothing is wrong with them, and what it leaves. See also test_other_hosts.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceward.errors import Fenced, NotShared
from onceward.journal import IdentityFile
from onceward.sinks import FileSink
from onceward.spark import probe
from onceward.storage import LocalStorage

from .workspace import SparkWorkspace, expect_exactly_once

Look = Callable[[Iterable[int]], Iterator[probe.Sight]]


def test_executors_that_see_it_are_content_and_it_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    probe._probe(spark.sparkContext, {tmp_path / ".probe": "content"})
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_that_name_with_another_content_is_not_ours(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was copied has the names too."""
    real = probe._look
    monkeypatch.setattr(probe, "_look", lambda planted, held_s: real(dict.fromkeys(planted, "other"), held_s))
    with pytest.raises(NotShared, match=f"{tmp_path} on "):
        probe._probe(spark.sparkContext, {tmp_path / ".probe": "content"})
    assert list(tmp_path.iterdir()) == []


def test_a_probe_that_is_removed_meanwhile_tells_of_a_rival(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removing(planted: dict[str, str], held_s: float) -> Look:
        def look(_: Iterable[int]) -> Iterator[probe.Sight]:
            for path in planted:
                if os.path.exists(path):
                    os.unlink(path)
                yield "host", path

        return look

    monkeypatch.setattr(probe, "_look", removing)
    with pytest.raises(Fenced, match="was removed while"):
        probe._probe(spark.sparkContext, {tmp_path / ".probe": "content"})


def test_executors_that_cannot_be_asked_do_not_stop_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(planted: dict[str, str], held_s: float) -> Look:
        def look(_: Iterable[int]) -> Iterator[probe.Sight]:
            raise RuntimeError("no Python worth the name")

        return look

    monkeypatch.setattr(probe, "_look", failing)
    probe._probe(spark.sparkContext, {tmp_path / ".probe": "content"})
    assert "could not be asked" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_probe_that_a_crash_left_harms_nothing_and_goes_with_the_next_run(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(1)
    workspace.job().run(spark)
    record = IdentityFile(LocalStorage(workspace.checkpoint / "onceward")).read()
    assert record is not None
    places = [workspace.files / ".onceward", workspace.checkpoint / "onceward"]
    ours = f".onceward-probe-{record.identity.digest}-{record.identity.generation}-oldrun"
    others = f".onceward-probe-{record.identity.digest}-zzzzzzzz-oldrun"
    for place in places:
        for name in (ours, others):
            (place / name).write_text("left over")
    assert len(FileSink(workspace.files).receipts(record.identity)) == len(list(workspace.files.glob("*.parquet")))
    workspace.add_files(1)
    workspace.job().run(spark)
    for place in places:
        assert not (place / ours).exists()
        assert (place / others).exists(), "another checkpoint's: it may be at work"
    expect_exactly_once(workspace.in_files(), workspace.ids())
    expect_exactly_once(spark.read.parquet(str(workspace.files)).toArrow().to_pylist(), workspace.ids())
