"""The same kills, without onceward: if these tests found no duplicates, the others would prove nothing."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceward.testing import Audit, audit

from .processes import run_to_end, said
from .workspace import ROWS, SparkWorkspace, read_files, visible

pytestmark = pytest.mark.soak
"""`make test` has the demo, which finds the duplicates of a naive job under the same kills, too."""

CONTROL = str(Path(__file__).with_name("control.py"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> SparkWorkspace:
    """After one kill and a start that ran to the end."""
    workspace = SparkWorkspace(tmp_path_factory.mktemp("control"))
    workspace.add_files(3)
    assert run_to_end(workspace, CONTROL, die=True) == -signal.SIGKILL, said(workspace)
    assert run_to_end(workspace, CONTROL, die=False) == 0, said(workspace)
    return workspace


def judged(rows: list[dict[str, object]], workspace: SparkWorkspace) -> Audit:
    return audit(rows, workspace.ids(), key_column=None, epoch_column=None)


def test_a_naive_foreach_batch_duplicates_a_whole_epoch_in_a_database(killed: SparkWorkspace) -> None:
    with closing(sqlite3.connect(killed.work / "naive.db")) as database:
        rows = [{"id": identifier} for (identifier,) in database.execute("SELECT id FROM t")]
    verdict = judged(rows, killed)
    assert sorted(verdict.duplicate) == killed.ids()[ROWS : 2 * ROWS]
    assert verdict.at_least_once
    assert not verdict.exactly_once


def test_a_naive_foreach_batch_duplicates_a_whole_epoch_in_a_folder(killed: SparkWorkspace) -> None:
    verdict = judged(read_files(visible(killed.work / "naive")), killed)
    assert sorted(verdict.duplicate) == killed.ids()[ROWS : 2 * ROWS]


def test_a_plain_reader_of_sparks_own_file_sink_sees_duplicates(killed: SparkWorkspace, spark: SparkSession) -> None:
    listed = visible(killed.work / "spark-out")
    whole = [path for path in listed if path.read_bytes()[-4:] == b"PAR1"]
    assert len(whole) < len(listed), "the killed task's unfinished file is visible, too"
    verdict = judged(read_files(whole), killed)
    assert verdict.duplicate
    assert verdict.at_least_once
    # Who reads its metadata sees none: that is the guarantee that it gives, and the limit of it.
    rows = [row.asDict() for row in spark.read.parquet(str(killed.work / "spark-out")).collect()]
    assert judged(rows, killed).exactly_once
