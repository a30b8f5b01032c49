"""The file sink publishes: each file whole, once and under a name of its own, also after a crash or beside another."""

import os
import pickle
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from staged_files import ROWS, Contexts, files, hidden, ids, publish_first_file_only, stage, visible

from onceward.contracts import AlreadyCommitted, Committed, Handle, Lost, RetryLater
from onceward.errors import DamagedFile
from onceward.identity import JobIdentity
from onceward.sinks import FileSink


def test_nothing_is_visible_before_the_commit_and_everything_after(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path)
    handle = stage(sink, context(sink.name))
    assert visible(tmp_path) == []
    assert sink.commit(handle) == Committed()
    assert ids(tmp_path) == [1, 2, 3, 4]
    assert hidden(tmp_path) == []


def test_a_commit_repeated_changes_nothing_and_says_so(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path)
    handle = stage(sink, context(sink.name))
    sink.commit(handle)
    assert sink.commit(handle) == AlreadyCommitted()
    assert sink.commit(handle) == AlreadyCommitted()
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_a_commit_by_a_pickled_copy_of_the_sink_works(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, partition_by=["app"])
    handle = stage(pickle.loads(pickle.dumps(sink)), context(sink.name))
    assert pickle.loads(pickle.dumps(sink)).commit(handle) == Committed()
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_a_commit_that_crashed_half_way_is_completed_by_the_next(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=2)
    handle = stage(sink, context(sink.name))
    publish_first_file_only(sink, handle)
    assert ids(tmp_path) == [1, 2]
    assert sink.commit(handle) == Committed()
    assert ids(tmp_path) == [1, 2, 3, 4]
    assert hidden(tmp_path) == []


def test_a_crash_before_the_staged_names_are_removed_is_repaired(
    tmp_path: Path, context: Contexts, job: JobIdentity
) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=2)
    handle = stage(sink, context(sink.name))
    for file in files(handle):
        os.link(tmp_path / ".onceward" / file["staged"], tmp_path / file["final"])
    assert sink.commit(handle) == AlreadyCommitted()
    assert ids(tmp_path) == [1, 2, 3, 4]
    assert list(sink.pending(job)) == []


def test_a_commit_of_nothing_is_committed(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path)
    handle = stage(sink, context(sink.name), ROWS.slice(0, 0))
    assert handle["files"] == []
    assert sink.commit(handle) == Committed()
    assert visible(tmp_path) == []


def test_staged_files_that_are_gone_are_lost_and_nothing_else_is_published(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=2)
    handle = stage(sink, context(sink.name))
    (tmp_path / ".onceward" / hidden(tmp_path)[1]).unlink()
    outcome = sink.commit(handle)
    assert isinstance(outcome, Lost)
    assert "neither is its staged file" in outcome.why
    assert visible(tmp_path) == []


@pytest.mark.parametrize("as_long", [True, False])
def test_someone_elses_file_of_the_same_name_is_never_overwritten(
    tmp_path: Path, context: Contexts, as_long: bool
) -> None:
    sink = FileSink(tmp_path)
    handle = stage(sink, context(sink.name))
    stranger = tmp_path / files(handle)[0]["final"]
    content = "precious".ljust(files(handle)[0]["bytes"] if as_long else 0)
    stranger.write_text(content)
    assert isinstance(sink.commit(handle), RetryLater)
    assert stranger.read_text() == content
    stranger.unlink()
    assert sink.commit(handle) == Committed()


def test_two_publishers_at_once_publish_once(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=1)
    for epoch in range(20):
        handle = stage(sink, context(sink.name, epoch=epoch))
        outcomes: list[object] = []
        together = threading.Barrier(2)

        def publish(
            handle: Handle = handle, outcomes: list[object] = outcomes, together: threading.Barrier = together
        ) -> None:
            together.wait()
            outcomes.append(sink.commit(handle))

        threads = [threading.Thread(target=publish) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(isinstance(outcome, Committed | AlreadyCommitted) for outcome in outcomes)
        assert len(outcomes) == 2
    assert ids(tmp_path) == sorted([1, 2, 3, 4] * 20)
    assert hidden(tmp_path) == []


def test_a_file_system_without_hard_links_is_served_by_renaming(
    tmp_path: Path, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    sink = FileSink(tmp_path, partition_by="app", max_rows_per_file=1)
    sink.check(ROWS.schema, output_mode="append")
    handle = stage(sink, context(sink.name))
    assert sink.commit(handle) == Committed()
    assert sink.commit(handle) == AlreadyCommitted()
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_without_hard_links_someone_elses_file_is_not_overwritten_either(
    tmp_path: Path, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    sink = FileSink(tmp_path)
    handle = stage(sink, context(sink.name))
    stranger = tmp_path / files(handle)[0]["final"]
    stranger.write_text("precious")
    assert isinstance(sink.commit(handle), RetryLater)
    assert stranger.read_text() == "precious"


def test_a_staged_file_that_is_there_already_is_not_written_over(tmp_path: Path, context: Contexts) -> None:
    """Its name is one attempt's own: a second writer of it means that something is very wrong."""
    sink = FileSink(tmp_path)
    handle = stage(sink, context(sink.name))
    staged = tmp_path / ".onceward" / files(handle)[0]["staged"]
    before = staged.read_bytes()
    with pytest.raises(FileExistsError):
        stage(sink, context(sink.name), ROWS.slice(0, 1))
    assert staged.read_bytes() == before


def test_a_handle_that_points_out_of_the_folder_is_refused(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path / "out")
    handle = stage(sink, context(sink.name))
    file = files(handle)[0]
    for final in ("../" + file["final"], "/etc/passwd", "a//" + file["final"]):
        with pytest.raises(DamagedFile):
            sink.commit({**handle, "files": [{**file, "final": final}]})


def test_a_concurrent_reader_sees_whole_files_only(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path)
    batch = pa.record_batch({"id": pa.array(range(20_000), pa.int64())})
    is_done = threading.Event()
    sizes: set[int] = set()

    def read() -> None:
        while not is_done.is_set():
            sizes.update(pq.read_metadata(path).num_rows for path in tmp_path.glob("*.parquet"))

    reader = threading.Thread(target=read)
    reader.start()
    for epoch in range(30):
        sink.commit(stage(sink, context(sink.name, epoch=epoch), batch))
    is_done.set()
    reader.join()
    assert sizes <= {20_000}
