"""A look at a job's checkpoint from outside leaves it as it is."""

from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.job import inspect_job_checkpoint


def test_a_look_makes_no_folder(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(ConfigurationError, match="no onceward job has run"):
        inspect_job_checkpoint(tmp_path, (), frozenset(), "job")
    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]


def test_a_directory_that_cannot_be_looked_at_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written") as caught:
        inspect_job_checkpoint(tmp_path / ("x" * 300), (), frozenset())
    assert caught.value.hint
