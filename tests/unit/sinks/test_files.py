"""The file sink, driven through its contract on real folders."""

import json
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from onceward.contracts import AlreadyCommitted, Committed, Handle, Lost, Receipt, RetryLater, SlotContext
from onceward.epoch import SinkAck
from onceward.errors import (
    ConfigurationError,
    DamagedFile,
    StorageFailed,
    TargetRefused,
)
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName
from onceward.sinks import FileSink
from onceward.sinks.files import publish as files_publish

Contexts = Callable[..., SlotContext]

ROWS = pa.record_batch({"id": pa.array([1, 2, 3, 4], pa.int64()), "app": ["a", "b", "a", None]})


def stage(sink: FileSink, context: SlotContext, *batches: pa.RecordBatch) -> Handle:
    transaction = sink.begin_transaction(context)
    for batch in batches or (ROWS,):
        sink.invoke(transaction, batch)
    handle = SinkAck.of(sink.pre_commit(transaction), context, sink.name).handle
    return dict(json.loads(json.dumps(handle)))


def files(handle: Handle) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], handle["files"])


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".onceward" not in path.parts)


def hidden(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / ".onceward"))


def ids(folder: Path) -> list[int]:
    """As a reader who lists the folder would see them."""
    tables = [pq.ParquetFile(path).read(columns=["id"]) for path in visible(folder)]
    return sorted(value for table in tables for value in table["id"].to_pylist())


def publish_first_file_only(sink: FileSink, handle: Handle) -> None:
    """What a crash after the first of several files leaves behind."""
    with pytest.MonkeyPatch.context() as patch:

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        real = files_publish.give_name
        calls = iter([real])
        patch.setattr(files_publish, "give_name", lambda *args: next(calls, die)(*args))
        with pytest.raises(KeyboardInterrupt):
            sink.commit(handle)


# --- publishing -----------------------------------------------------------------------------------


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


def test_someone_elses_file_of_the_same_name_is_never_overwritten(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path)
    handle = stage(sink, context(sink.name))
    stranger = tmp_path / files(handle)[0]["final"]
    stranger.write_text("precious")
    assert isinstance(sink.commit(handle), RetryLater)
    assert stranger.read_text() == "precious"
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


# --- aborting and recovering ------------------------------------------------------------------------


def test_abort_removes_what_is_staged_and_may_be_repeated(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=1)
    handle = stage(sink, context(sink.name))
    sink.abort(handle)
    sink.abort(handle)
    assert hidden(tmp_path) == []
    assert isinstance(sink.commit(handle), Lost)


def test_abort_after_commit_removes_nothing_visible(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=2)
    handle = stage(sink, context(sink.name))
    sink.commit(handle)
    sink.abort(handle)
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_a_half_visible_slot_proves_its_decision_and_is_completed_by_another_commit(
    tmp_path: Path, context: Contexts, job: JobIdentity
) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=2)
    handle = stage(sink, context(sink.name))
    publish_first_file_only(sink, handle)
    assert [(receipt.epoch, receipt.slot) for receipt in sink.receipts(job)] == [(7, 0)]
    assert sink.commit(handle) == Committed()
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_abort_cleans_up_after_a_publisher_that_had_given_every_name(
    tmp_path: Path, context: Contexts, job: JobIdentity
) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=2)
    handle = stage(sink, context(sink.name))
    staged = {name: (tmp_path / ".onceward" / name).read_bytes() for name in hidden(tmp_path)}
    sink.commit(handle)
    for name, content in staged.items():
        (tmp_path / ".onceward" / name).write_bytes(content)
    for left in sink.pending(job):
        sink.abort(left)
    assert hidden(tmp_path) == []
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_pending_finds_begun_and_staged_transactions_of_this_job_generation_and_sink_only(
    tmp_path: Path, context: Contexts, job: JobIdentity
) -> None:
    sink = FileSink(tmp_path, name="one", max_rows_per_file=2)
    other_sink = FileSink(tmp_path, name="two")
    mine = stage(sink, context(sink.name))
    begun = sink.begin_transaction(context(sink.name, slot=1, attempt=2))
    sink.invoke(begun, ROWS)
    stage(other_sink, context(other_sink.name))
    stage(sink, context(sink.name, job=JobIdentity(job.name, Generation("bbbbbbbb"))))
    stage(sink, context(sink.name, job=JobIdentity(JobName("page views 2"), job.generation)))
    found = {handle["transaction"]: files(handle) for handle in sink.pending(job)}
    assert set(found) == {mine["transaction"], str(context(sink.name, slot=1, attempt=2).transaction)}
    assert all(len(staged) == 2 for staged in found.values())
    for handle in sink.pending(job):
        sink.abort(handle)
    assert list(sink.pending(job)) == []
    assert len(hidden(tmp_path)) == 1 + 2 * 2


def test_a_foreign_file_in_the_hidden_folder_is_left_alone(tmp_path: Path, context: Contexts, job: JobIdentity) -> None:
    sink = FileSink(tmp_path)
    handle = stage(sink, context(sink.name))
    strangers = ["notes.txt", f"{handle['transaction']}x-0.parquet", f"{handle['transaction']}.bak", "ow1_x-0.csv"]
    for name in strangers:
        (tmp_path / ".onceward" / name).touch()
    assert [pending["transaction"] for pending in sink.pending(job)] == [handle["transaction"]]
    sink.abort(handle)
    assert hidden(tmp_path) == sorted(strangers)


def test_a_discarded_transaction_leaves_nothing(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, partition_by="app", max_rows_per_file=1)
    transaction = sink.begin_transaction(context(sink.name))
    sink.invoke(transaction, ROWS)
    sink.discard(transaction)
    assert hidden(tmp_path) == []


def test_a_zombie_whose_files_were_aborted_cannot_pre_commit(
    tmp_path: Path, context: Contexts, job: JobIdentity
) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=2)
    zombie = sink.begin_transaction(context(sink.name))
    sink.invoke(zombie, ROWS)
    for handle in sink.pending(job):
        sink.abort(handle)
    with pytest.raises(StorageFailed, match="vanished"):
        sink.pre_commit(zombie)


def test_the_recovery_of_a_folder_that_does_not_exist_finds_nothing(tmp_path: Path, job: JobIdentity) -> None:
    sink = FileSink(tmp_path / "missing")
    assert list(sink.pending(job)) == []
    assert list(sink.receipts(job)) == []


# --- receipts ---------------------------------------------------------------------------------------


def test_receipts_are_the_published_slots_of_every_generation(
    tmp_path: Path, context: Contexts, job: JobIdentity, fingerprint: Fingerprint
) -> None:
    sink = FileSink(tmp_path, partition_by="app", name="one")
    older = JobIdentity(job.name, Generation("bbbbbbbb"))
    sink.commit(stage(sink, context(sink.name, epoch=7, slot=0)))
    sink.commit(stage(sink, context(sink.name, epoch=7, slot=1)))
    sink.commit(stage(sink, context(sink.name, epoch=40, job=older)))
    stage(sink, context(sink.name, epoch=8))
    other = FileSink(tmp_path, name="two")
    other.commit(stage(other, context(other.name)))
    sink.commit(stage(sink, context(sink.name, job=JobIdentity(JobName("page views 2"), job.generation))))
    (tmp_path / "part-0000.parquet").touch()

    def receipt(generation: str, epoch: int, slot: int) -> Receipt:
        return Receipt(job.name, Generation(generation), sink.name, epoch, slot, fingerprint)

    assert set(sink.receipts(job)) == {
        receipt("aaaaaaaa", 7, 0),
        receipt("aaaaaaaa", 7, 1),
        receipt("bbbbbbbb", 40, 0),
    }


# --- content ----------------------------------------------------------------------------------------


def test_partition_columns_become_folders_as_spark_writes_them(tmp_path: Path, context: Contexts) -> None:
    values = ["plain", "a b", "a/b", "50%", "x=y", 'q"', "ü☃", "c:d", None, "", "{[]}^", "new\nline", "..", "'#*?\\"]
    batch = pa.record_batch({"id": pa.array(range(len(values)), pa.int64()), "app": values})
    sink = FileSink(tmp_path, partition_by=["app"])
    sink.commit(stage(sink, context(sink.name), batch))
    folders = {path.parent.name for path in visible(tmp_path)}
    assert folders == {
        "app=plain",
        "app=a b",
        "app=a%2Fb",
        "app=50%25",
        "app=x%3Dy",
        "app=q%22",
        "app=ü☃",
        "app=c%3Ad",
        "app=__HIVE_DEFAULT_PARTITION__",
        "app=%7B%5B%5D}%5E",
        "app=new%0Aline",
        "app=..",
        "app=%27%23%2A%3F%5C",
    }
    assert ids(tmp_path) == list(range(len(values)))
    assert pq.read_schema(visible(tmp_path)[0]).names == ["id"]


def test_partition_values_of_every_plain_type_are_spelled_as_spark_does(tmp_path: Path, context: Contexts) -> None:
    moment = pa.scalar(1_714_557_600_250_000, pa.timestamp("us", "UTC"))
    batch = pa.record_batch(
        {
            "i": pa.array([-5], pa.int32()),
            "b": pa.array([True]),
            "d": pa.array([19844], pa.date32()),
            "ts": pa.array([moment.as_py()], pa.timestamp("us", "UTC")),
            "dec": pa.array(["0.0000000001"]).cast(pa.decimal128(20, 10)),
            "id": pa.array([1], pa.int64()),
        }
    )
    sink = FileSink(tmp_path, partition_by=["i", "b", "d", "ts", "dec"])
    sink.check(batch.schema, output_mode="append")
    sink.commit(stage(sink, context(sink.name), batch))
    assert [path.parent.relative_to(tmp_path).as_posix() for path in visible(tmp_path)] == [
        "i=-5/b=true/d=2024-05-01/ts=2024-05-01 10%3A00%3A00.25/dec=0.0000000001"
    ]


def test_rows_keep_their_order_and_values_within_each_of_two_level_partitions(
    tmp_path: Path, context: Contexts
) -> None:
    count = 5_000
    batch = pa.record_batch(
        {
            "id": pa.array(range(count), pa.int64()),
            "app": [None if n % 7 == 0 else f"app{n % 7}" for n in range(count)],
            "hour": pa.array([n % 3 for n in range(count)], pa.int32()),
        }
    )
    sink = FileSink(tmp_path, partition_by=["app", "hour"])
    sink.commit(stage(sink, context(sink.name), *(batch.slice(at, 100) for at in range(0, count, 100))))
    assert len(visible(tmp_path)) == 21
    for path in visible(tmp_path):
        app, hour = path.parent.parent.name.removeprefix("app="), int(path.parent.name.removeprefix("hour="))
        number = 0 if app == "__HIVE_DEFAULT_PARTITION__" else int(app.removeprefix("app"))
        expected = [n for n in range(count) if n % 7 == number and n % 3 == hour]
        assert pq.ParquetFile(path).read()["id"].to_pylist() == expected


def test_a_partition_value_too_long_for_a_folder_is_refused_before_the_decision(
    tmp_path: Path, context: Contexts
) -> None:
    sink = FileSink(tmp_path, partition_by="app")
    with pytest.raises(TargetRefused, match="255"):
        stage(sink, context(sink.name), pa.record_batch({"id": [1], "app": ["ü" * 200]}))


def test_files_roll_at_exactly_the_number_of_rows(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=3)
    handle = stage(sink, context(sink.name), ROWS, ROWS)
    assert [file["rows"] for file in files(handle)] == [3, 3, 2]
    assert handle["rows"] == 8
    sink.commit(handle)
    assert ids(tmp_path) == [1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
def test_files_roll_at_about_the_number_of_bytes(tmp_path: Path, context: Contexts, format: str) -> None:
    batches = [pa.record_batch({"id": pa.array(range(at, at + 1000), pa.int64())}) for at in range(0, 100_000, 1000)]
    sink = FileSink(tmp_path, format=format, max_bytes_per_file=50_000)
    handle = stage(sink, context(sink.name), *batches)
    sizes = [file["bytes"] for file in files(handle)]
    assert len(sizes) > 3
    assert all(50_000 <= size < 150_000 for size in sizes[:-1])
    assert handle["rows"] == 100_000


def test_more_partitions_than_open_files_lose_nothing(
    tmp_path: Path, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.sinks.files.writer._BYTES_OF_ALL_PARTITIONS", 1)
    monkeypatch.setattr("onceward.sinks.files.writer._ROWS_TO_SPLIT", 1)
    rows = pa.record_batch({"id": pa.array(range(400), pa.int64()), "app": pa.array([n % 100 for n in range(400)])})
    sink = FileSink(tmp_path, partition_by="app")
    before = len(os.listdir("/proc/self/fd"))
    transaction = sink.begin_transaction(context(sink.name))
    for _ in range(3):
        sink.invoke(transaction, rows)
        assert len(os.listdir("/proc/self/fd")) - before <= 64
    sink.commit(sink.pre_commit(transaction))
    assert ids(tmp_path) == sorted(list(range(400)) * 3)


def test_small_batches_share_a_row_group(tmp_path: Path, context: Contexts) -> None:
    batch = pa.record_batch({"id": pa.array(range(1000), pa.int64())})
    sink = FileSink(tmp_path)
    sink.commit(stage(sink, context(sink.name), *[batch] * 50))
    assert pq.read_metadata(visible(tmp_path)[0]).num_row_groups == 1


EVERY_TYPE = pa.table(
    {
        "i": pa.array([1, None, -3], pa.int32()),
        "f": pa.array([1.0, float("nan"), float("-inf")]),
        "s": pa.array(['a"b\\c\n\x01ü☃', None, ""]),
        "b": pa.array([b"\x00\xff", None, b""]),
        "t": pa.array([True, None, False]),
        "d": pa.array([19723, None, 0], pa.date32()),
        "ts": pa.array([1_714_557_600_250_001, None, -1], pa.timestamp("us", "Europe/Berlin")),
        "ntz": pa.array([1_714_557_600_250_001, None, -1], pa.timestamp("us")),
        "dec": pa.array(["1.20", None, "-0.01"]).cast(pa.decimal128(38, 2)),
        "l": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "st": pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int32())])),
        "m": pa.array([[("k", 1), ("j", None)], None, []], pa.map_(pa.string(), pa.int32())),
        "n": pa.nulls(3),
    }
)


def test_parquet_keeps_every_type_and_null(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path)
    sink.check(EVERY_TYPE.schema, output_mode="append")
    sink.commit(stage(sink, context(sink.name), *EVERY_TYPE.to_batches()))
    found = pq.ParquetFile(visible(tmp_path)[0]).read()
    assert found.schema == EVERY_TYPE.schema
    assert str(found.to_pylist()) == str(EVERY_TYPE.to_pylist())


def test_json_lines_look_as_spark_writes_them(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, format="jsonl")
    sink.check(EVERY_TYPE.schema, output_mode="append")
    sink.commit(stage(sink, context(sink.name), *EVERY_TYPE.to_batches(max_chunksize=2)))
    lines = visible(tmp_path)[0].read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    assert '"dec":1.20' in lines[0]
    assert [json.loads(line) for line in lines] == [
        {
            "i": 1,
            "f": 1.0,
            "s": 'a"b\\c\n\x01ü☃',
            "b": "AP8=",
            "t": True,
            "d": "2024-01-01",
            "ts": "2024-05-01T10:00:00.250001Z",
            "ntz": "2024-05-01T10:00:00.250001",
            "dec": 1.2,
            "l": [1, None],
            "st": {"a": 1},
            "m": {"k": 1, "j": None},
        },
        {"f": "NaN"},
        {
            "i": -3,
            "f": "-Infinity",
            "s": "",
            "b": "",
            "t": False,
            "d": "1970-01-01",
            "ts": "1969-12-31T23:59:59.999999Z",
            "ntz": "1969-12-31T23:59:59.999999",
            "dec": -0.01,
            "l": [],
            "st": {},
            "m": {},
        },
    ]


def test_json_lines_of_nothing_but_null_are_empty_objects(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, format="jsonl")
    sink.commit(stage(sink, context(sink.name), pa.record_batch({"a": pa.nulls(2, pa.int64())})))
    assert visible(tmp_path)[0].read_text() == "{}\n{}\n"


def test_csv_has_a_header_and_tells_null_from_empty(tmp_path: Path, context: Contexts) -> None:
    columns = EVERY_TYPE.select(["i", "s", "t", "d", "ts", "dec"])
    sink = FileSink(tmp_path, format="csv")
    sink.check(columns.schema, output_mode="append")
    sink.commit(stage(sink, context(sink.name), *columns.to_batches()))
    text = visible(tmp_path)[0].read_text(encoding="utf-8")
    assert text.startswith('"i","s","t","d","ts","dec"\n1,"a""b\\c\n\x01ü☃",true,2024-01-01,')
    assert '"2024-05-01T10:00:00.250001Z",1.20\n,,,,,\n-3,"",false,' in text


@pytest.mark.parametrize(
    ("format", "compression", "ending"),
    [
        ("parquet", None, ".snappy.parquet"),
        ("parquet", "zstd", ".zstd.parquet"),
        ("parquet", "none", ".parquet"),
        ("jsonl", "gzip", ".jsonl.gz"),
        ("csv", "gzip", ".csv.gz"),
    ],
)
def test_compressed_files_say_so_in_their_names_and_can_be_read(
    tmp_path: Path, context: Contexts, format: str, compression: str | None, ending: str
) -> None:
    sink = FileSink(tmp_path, format=format, compression=compression)
    sink.commit(stage(sink, context(sink.name)))
    (path,) = visible(tmp_path)
    assert path.name.endswith(ending)
    if format == "parquet":
        assert pq.ParquetFile(path).read().num_rows == 4
    else:
        lines = pa.input_stream(path, compression="gzip").read().decode().splitlines()
        assert len(lines) == 4 + (format == "csv")


# --- checks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path,
        str,
        lambda path: f"file:{path}",
        lambda path: f"file://{path}",
        lambda path: f"{path}/",
        lambda path: f"{path}/../{path.name}",
    ],
)
def test_one_folder_spelled_in_different_ways_is_one_folder(tmp_path: Path, make: Callable[[Path], str | Path]) -> None:
    assert FileSink(make(tmp_path / "out")).path == tmp_path / "out"
    assert FileSink(make(tmp_path / "out")).name == "files:out"


@pytest.mark.parametrize("path", ["s3://bucket/x", "s3a://bucket/x", "hdfs://host/x", "gs://b/x", "abfss://x"])
def test_a_path_on_another_system_is_refused_with_a_hint(path: str) -> None:
    with pytest.raises(ConfigurationError, match="local") as refused:
        FileSink(path)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "orc"}, "parquet, jsonl, csv"),
        ({"format": "csv", "compression": "snappy"}, "none, gzip"),
        ({"partition_by": ["a", "a"]}, "each column once"),
        ({"max_rows_per_file": 0}, "at least 1"),
        ({"max_bytes_per_file": -1}, "at least 1"),
        ({"name": "a/b"}, "without slashes"),
    ],
)
def test_wrong_options_are_refused_with_a_hint(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        FileSink(tmp_path, **options)
    assert said in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("options", "schema", "said"),
    [
        ({"partition_by": "day"}, {"id": pa.int64()}, "no column day"),
        ({"partition_by": "f"}, {"id": pa.int64(), "f": pa.float64()}, "cannot name a folder"),
        ({"partition_by": "l"}, {"id": pa.int64(), "l": pa.list_(pa.int64())}, "cannot name a folder"),
        ({"partition_by": ".x"}, {"id": pa.int64(), ".x": pa.int64()}, "hidden"),
        ({"partition_by": "id"}, {"id": pa.int64()}, "every column is a partition column"),
        ({"format": "csv"}, {"l": pa.list_(pa.int64())}, "does not fit csv"),
        ({"format": "csv"}, {"b": pa.binary()}, "does not fit csv"),
        ({"format": "jsonl"}, {"d": pa.duration("us")}, "jsonl does not take"),
        ({"format": "jsonl", "options": {"x": 1}}, {"id": pa.int64()}, "no options"),
        ({"options": {"nonsense": 1}}, {"id": pa.int64()}, "nonsense"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, options: dict[str, Any], schema: dict[str, pa.DataType], said: str
) -> None:
    sink = FileSink(tmp_path, **options)
    with pytest.raises(TargetRefused, match=said) as refused:
        sink.check(pa.schema(schema), output_mode="append")
    assert refused.value.hint


def test_output_mode_complete_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetRefused, match="complete"):
        FileSink(tmp_path).check(ROWS.schema, output_mode="complete")


def test_check_makes_the_folder_and_leaves_no_trace_in_it(tmp_path: Path) -> None:
    FileSink(tmp_path / "new" / "out").check(ROWS.schema, output_mode="append")
    assert os.listdir(tmp_path / "new" / "out") == [".onceward"]
    assert hidden(tmp_path / "new" / "out") == []


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TargetRefused, match="cannot write"):
        FileSink(tmp_path / "file").check(ROWS.schema, output_mode="append")
