"""The file sink after a crash: what it finds pending, what an abort removes, and which receipts it has."""

import os
from pathlib import Path

import pytest
from staged_files import ROWS, Contexts, files, hidden, ids, publish_first_file_only, stage

from onceward.contracts import Committed, Lost, Receipt
from onceward.errors import StorageFailed
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName
from onceward.sinks import FileSink

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


def test_staged_names_are_gone_from_the_disk_before_an_epoch_is_settled(
    tmp_path: Path, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a power loss brought back would be published again where a reader has taken the visible file away."""
    sink = FileSink(tmp_path)
    handle = stage(sink, context(sink.name))
    synced: list[tuple[Path, list[str]]] = []
    monkeypatch.setattr(
        "onceward.sinks.files.sink.sync_folder", lambda folder: synced.append((folder, os.listdir(folder)))
    )
    assert sink.commit(handle) == Committed()
    assert synced[-1] == (tmp_path / ".onceward", [])
