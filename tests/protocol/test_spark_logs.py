"""Spark's own logs on disk: what a barrier's fingerprint covers, and going back to before a decision."""

from pathlib import Path

import pytest

from onceward.contracts import Log, Receipt
from onceward.errors import CheckpointRefused, DamagedFile
from onceward.identity import Fingerprint, Generation, JobName, SinkName
from onceward.journal import IdentityFile, IdentityRecord, Marker, SettledLog
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.leftovers import remove_leftovers
from onceward.spark.rewind import rewind
from onceward.storage import LocalStorage
from onceward.testing.engine import COMMITS_ENTRY, DirectoryLogs, offsets_entry
from onceward.testing.fakes import ManualClock

NOW = ManualClock().now()
GENERATION = Generation("aaaaaaaa")
EPOCHS = 4


def test_barriers_that_differ_in_their_positions_alone_have_different_fingerprints(tmp_path: Path) -> None:
    logs = DirectoryLogs(tmp_path)
    for epoch, end in enumerate((4, 8, 8)):
        logs.plan(epoch, offsets_entry(end, at=NOW))
    first, second, third = (SparkLogs(tmp_path).barrier(epoch) for epoch in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.fingerprint != second.fingerprint
    assert second.fingerprint == third.fingerprint


def test_an_empty_epoch_is_no_repartitioned_one(tmp_path: Path) -> None:
    logs = DirectoryLogs(tmp_path)
    logs.plan(0, offsets_entry(4, at=NOW))
    logs.plan(1, offsets_entry(4, at=NOW))
    logs.plan(2, offsets_entry(4, at=NOW, shuffle_partitions=50))
    logs.plan(3, offsets_entry(8, at=NOW))
    assert [SparkLogs(tmp_path).is_engine_made(epoch) for epoch in range(4)] == [False, False, True, False]


def test_an_unfinished_barrier_is_removed_only_where_nothing_was_ever_planned(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    unfinished = ".0.d8a1cac3-b3e1-45f6-a265-b0774b5c7eeb.tmp"
    (offsets / unfinished).write_text("v1\n")
    (offsets / "0").write_text("v1\n{}\n-")
    assert remove_leftovers(tmp_path) == []
    (offsets / "0").unlink()
    assert remove_leftovers(tmp_path) == [f"offsets/{unfinished}"]


@pytest.mark.parametrize("torn", ["", "v1", 'v1\n{"nextBatch', "\0\0\0\0", "v1\n{}\n\0\0"])
def test_a_torn_entry_is_no_decision_and_no_barrier(tmp_path: Path, torn: str) -> None:
    """A start repairs what it can; whoever reads on, beside it or because it could not, must not believe it."""
    folder = checkpoint(tmp_path)
    (folder / "commits" / "3").write_text(torn)
    (folder / "offsets" / "3").write_text(torn)
    logs = SparkLogs(folder)
    for read in (logs.decided, lambda: logs.decision(3), lambda: logs.barrier(3)):
        with pytest.raises(DamagedFile, match="/3 is empty or torn"):
            read()
    assert logs.entries(Log.COMMITS)[3] is None


def test_an_entry_that_was_written_anew_since_it_was_looked_at_is_not_removed(tmp_path: Path) -> None:
    """Another driver planned the epoch between our look and our removal."""
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "1").write_text("v1\n{}\nanother")
    logs = SparkLogs(tmp_path)
    for seen in (None, "v1\n{}\nas it was"):
        logs.drop(Log.OFFSETS, 1, seen)
        assert (offsets / "1").exists()
    logs.drop(Log.OFFSETS, 1, "v1\n{}\nanother")
    assert not (offsets / "1").exists()


# --- rewind ---------------------------------------------------------------------------------------


def checkpoint(folder: Path) -> Path:
    """Four decided epochs, none of them published; Hadoop's checksums lie beside the entries."""
    logs = DirectoryLogs(folder)
    for epoch in range(EPOCHS):
        logs.plan(epoch, offsets_entry(4 * epoch + 4, at=NOW))
        logs.commit(epoch, COMMITS_ENTRY)
        for log in ("offsets", "commits"):
            (folder / log / f".{epoch}.crc").write_bytes(b"crc")
    storage = LocalStorage(folder / "onceward")
    IdentityFile(storage).create(IdentityRecord(0, JobName("job"), GENERATION, (), -1, "here"))
    return folder


def numbers(log: Path) -> list[int]:
    return sorted(int(path.name) for path in log.iterdir() if path.name.isdigit())


def test_a_rewound_epoch_keeps_its_barrier_and_loses_its_decision(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    barrier = (folder / "offsets" / "1").read_text()
    rewind(folder, 1)
    assert numbers(folder / "offsets") == [0, 1]
    assert numbers(folder / "commits") == [0]
    assert (folder / "offsets" / "1").read_text() == barrier
    assert sorted(path.name for path in folder.rglob("*.crc")) == [".0.crc", ".0.crc", ".1.crc"]


def test_an_epoch_that_has_a_receipt_is_not_rewound(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    receipt = Receipt(JobName("job"), GENERATION, SinkName("sink"), 2, 0, Fingerprint("f"))
    with pytest.raises(CheckpointRefused, match="epoch 2 is published"):
        rewind(folder, 1, receipts=(receipt,))
    assert numbers(folder / "commits") == [0, 1, 2, 3]
    rewind(folder, 3, receipts=(receipt,))
    assert numbers(folder / "commits") == [0, 1, 2]


def settle(folder: Path) -> SettledLog:
    log = SettledLog(LocalStorage(folder / "onceward"))
    for epoch in range(EPOCHS):
        log.mark(Marker(epoch, Fingerprint("f"), NOW, {}))
    return log


def test_a_settled_epoch_that_the_targets_lost_is_rewound_with_its_marker(tmp_path: Path) -> None:
    """The markers go first: an epoch that is undecided and still settled would pass without being staged."""
    for point in range(40):
        folder = checkpoint(tmp_path / str(point))
        settled = settle(folder)
        with pytest.raises(CheckpointRefused):
            rewind(folder, 1)
        with pytest.MonkeyPatch.context() as patch:
            die_at(point, patch)
            try:
                rewind(folder, 1, went_back=True)
                break
            except Killed:
                pass
        assert SparkLogs(folder).decided() >= settled.watermark()
        rewind(folder, 1, went_back=True)
        assert (settled.epochs(), numbers(folder / "commits")) == ([0], [0])
    assert (settled.epochs(), numbers(folder / "commits")) == ([0], [0])


class Killed(BaseException):
    """At one of the removals."""


def die_at(point: int, patch: pytest.MonkeyPatch) -> None:
    unlink, left = Path.unlink, [point]

    def mortal(path: Path, missing_ok: bool = False) -> None:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        unlink(path, missing_ok=missing_ok)

    patch.setattr(Path, "unlink", mortal)


def test_a_rewind_that_dies_half_way_skips_nothing_and_can_be_given_again(tmp_path: Path) -> None:
    """Until it is through the epoch counts as decided: Spark would not run it, and onceward would miss it."""
    for point in range(40):
        folder = checkpoint(tmp_path / str(point))
        with pytest.MonkeyPatch.context() as patch:
            die_at(point, patch)
            try:
                rewind(folder, 1)
                break
            except Killed:
                pass
        barriers, commits = numbers(folder / "offsets"), numbers(folder / "commits")
        assert barriers == list(range(len(barriers))), "no barrier stands above a gap"
        assert barriers[-1] == EPOCHS - 1 or commits == [0], "decisions go before the barriers above them"
        if barriers[-1] > 1:
            assert SparkLogs(folder).decided() >= 1
        rewind(folder, 1)
        assert (numbers(folder / "offsets"), numbers(folder / "commits")) == ([0, 1], [0])
    assert point > 8, "every removal was a point to die at"


def test_rewinding_takes_the_state_back_with_the_logs(tmp_path: Path) -> None:
    """Tried with Spark 4.3: with 4.snapshot left behind, the start after the next one counted without the new rows."""
    folder = checkpoint(tmp_path)
    stores = (folder / "state" / "0" / "0", folder / "state" / "0" / "1" / "left-keyToNumValues")
    kept = ["1.delta", "2.delta", "2.snapshot", ".2.delta.crc"]
    gone = ["3.delta", ".3.delta.crc", "4.snapshot", ".4.snapshot.crc", "4_a-b.zip", "4_a-b.zip.crc", "4.changelog"]
    for store in stores:
        store.mkdir(parents=True)
        for name in (*kept, *gone):
            (store / name).write_bytes(b"state")
    rewind(folder, 2)
    assert all(sorted(path.name for path in store.iterdir()) == sorted(kept) for store in stores)
