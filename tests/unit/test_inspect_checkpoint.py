"""A look at a job's checkpoint from outside leaves it as it is."""

from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.job import inspect_job_checkpoint, is_new


def test_a_look_makes_no_folder(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(ConfigurationError, match="no onceward job has run"):
        inspect_job_checkpoint(tmp_path, (), frozenset(), "job")
    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]


def test_a_directory_that_cannot_be_looked_at_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written") as caught:
        inspect_job_checkpoint(tmp_path / ("x" * 300), (), frozenset())
    assert caught.value.hint


def test_new_is_only_what_nothing_has_run_on(tmp_path: Path) -> None:
    assert is_new(tmp_path / "checkpoint")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "offsets").mkdir()
    assert is_new(tmp_path)
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{}")
    assert not is_new(tmp_path)


def test_what_cannot_be_looked_at_is_not_taken_for_new(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        is_new(tmp_path / ("x" * 300))
