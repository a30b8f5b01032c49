"""Today's code reads what every version wrote, and still writes the newest. Golden files are never edited.

A change that breaks a test here changes a stored format: give it a new version and a new golden folder, and keep
reading the old one.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from onceward.contracts import Guarantee, Receipt, SlotContext
from onceward.contracts.events import StagedSlot, StateSize
from onceward.errors import DamagedFile
from onceward.history import EpochRecord, HistoryLog, SinkRecord
from onceward.identity import (
    Fingerprint,
    Generation,
    JobIdentity,
    JobName,
    RunId,
    SinkName,
    TransactionName,
    fingerprint_of,
    sink_digest,
)
from onceward.journal import (
    Diversion,
    Diversions,
    Fate,
    IdentityFile,
    IdentityRecord,
    Kind,
    Manifest,
    Marker,
    Register,
    Resolution,
    Resolutions,
    Restored,
    SettledLog,
    SinkEntry,
    SinkTotal,
    SlotEntry,
    seal,
    unseal,
)
from onceward.operators import Column, Operator, SourceInfo, Topology, TopologyLog, TopologyRecord
from onceward.restart.history import Begun, Ended, How, Life, LifeLog, Reached, Then
from onceward.sinks import FileSink
from onceward.storage import LocalStorage
from onceward.testing import ManualClock
from onceward.verify.removed import Restoration, read_down, write_done, write_down
from onceward.wal import WAL, SegmentStore, SegmentWriter, read_segment

GOLDEN = Path(__file__).parent / "golden" / "v1"
FOLDER = GOLDEN / "onceward"
NEWER = Path(__file__).parent / "golden" / "v2" / "onceward"
"""Only the kinds that have a second version."""
THIRD, NEWEST = (Path(__file__).parent / "golden" / version / "onceward" for version in ("v3", "v4"))
"""Only identities."""


def sealed_in(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.suffix != ".arrow"
    )


SEALED = [(folder, path) for folder in (FOLDER, NEWER, THIRD, NEWEST) for path in sealed_in(folder)]
WRITTEN = {path: folder for folder, path in SEALED}
"""By which folder each kind of file is written today: the newest that has it."""

JOB = JobIdentity(JobName("app-pv é"), Generation("abcdefgh"))
RUN = RunId("runrun")
FINGERPRINT = Fingerprint("fingerprintabcde")
AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
FILES, TABLE = SinkName("files:pv"), SinkName("sqlite:pv")
NAME = "ow1_o62fkhvi_abcdefgh_2mv3fi_7_1_0_z_runrun"
FINAL = f"part-{NAME}-{FINGERPRINT}-0of1.snappy.parquet"
STAGED = {
    "transaction": NAME,
    "files": [{"staged": f"{NAME}-0.snappy.parquet", "final": FINAL, "rows": 2, "bytes": 10}],
    "rows": 2,
    "bytes": 10,
}
ROWS = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "app": pa.array(["maps", None], pa.string())})

FIRST_IDENTITY = IdentityRecord(1, JOB.name, JOB.generation, (Generation("zzzzzzzz"),), 4, "inode 2")
FIRST = IdentityRecord(0, JOB.name, Generation("zzzzzzzz"), (), -1, "inode 1", None, Guarantee.EXACTLY_ONCE)
IDENTITY = replace(
    FIRST_IDENTITY,
    directory_id="path /mnt/é/checkpoint/onceward",
    query="2e6c4492-d998-4939-b5fd-6c44ff104fae",
    guarantee=Guarantee.AT_LEAST_ONCE,
    since=5,
    before=Guarantee.AT_MOST_ONCE,
)
FROM_SAVEPOINT = Restored(
    Generation("zzzzzzzz"), 4, "k3zq2dva", "/data/é/checkpoint", {Generation("zzzzzzzz"): 9}, is_begun=True
)
RESTORED = replace(IDENTITY, restored=FROM_SAVEPOINT)
ACCEPTED = replace(IDENTITY, restored=replace(FROM_SAVEPOINT, accepted={Generation("zzzzzzzz"): {FILES: 11}}))
DIVERSION = Diversion(
    7, TABLE, {"ow1_o62fkhvi_abcdefgh_rwi2dj_7_1_0_z_runrun": (3, 17)}, "rejected/rejected-o62fkhvi-7-table.jsonl"
)
RESOLUTION = Resolution(
    kind=Kind.ACCEPT_LOSS,
    generation=JOB.generation,
    by="ann@host",
    at=AT,
    because="the server lost them; Ann has told the customer",
    epoch=7,
    sink=FILES,
    fingerprint=FINGERPRINT,
    transactions=(NAME,),
    shown=("2 rows of epoch 7 in 1 slots in sink 'files:pv' are given up",),
    number=0,
)
HISTORY = [
    EpochRecord(
        epoch=7,
        run=RUN,
        outcome="settled",
        takeover=1,
        guarantee="exactly-once",
        times={"barrier": AT, "begun": AT, "staged": AT, "pre_committed": AT, "decided": AT, "settled": AT},
        rows=2,
        bytes=40,
        slot_count=1,
        slots=(StagedSlot(0, 2, 40, "host", AT),),
        sinks={FILES: SinkRecord(2, 1, AT, AT, 1, "away for a moment")},
        engine_ms={"latestOffset": 3, "walCommit": 12},
        input_rows=9,
        sources={"FileStreamSource[file:/in]": "7"},
        state=(StateSize("stateStoreSave", 5, 1000, 4),),
    ),
    EpochRecord(8, RUN, "failed", times={"failed": AT}, error="EpochTimedOut", why="it took longer than 5 s"),
]
RESTORATION = Restoration(
    4, "removed-20260102T030405678000Z", ("state/0/0/.6.delta.crc", "state/0/0/6.delta", "commits/5"), (5, 6)
)
BEGUN = Begun(3, AT, "host-é", 4711, Reached(6, 5))
ENDED = Ended(
    3,
    AT,
    How.FAILED,
    Then.RESTART,
    61.25,
    Reached(8, 7),
    exit_code=3,
    error="PublishFailed",
    message="sink 'files:pv' is away",
)
TOPOLOGY = Topology(
    (
        Operator(1, "dedupe", "by user é", (Column("user", "string"), Column("at", "struct<start:timestamp>"))),
        Operator(0, "symmetricHashJoin", None, None, 2, ("left-keyToNumValues", "right-keyToNumValues")),
    ),
    (SourceInfo(0, "kafka", "views"), SourceInfo(1, None, "clicks", is_named_by_spark=True)),
    (FILES, TABLE),
)
TOTALS = {FILES: SinkTotal("two-phase commit", "exactly-once", 2, 5)}
BARRIER = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1767323045678,"conf":{}}\n{"logOffset":7}'
DECISION = 'v1\n{"nextBatchWatermarkMs":0}'


def context(sink: SinkName) -> SlotContext:
    return SlotContext(
        job=JOB, sink=sink, epoch=7, takeover=1, slot=0, attempt=35, run=RUN, timestamp=AT, fingerprint=FINGERPRINT
    )


def first_manifest() -> Manifest:
    segment = json.loads((GOLDEN / "segment-handle.json").read_text())
    sinks = {
        FILES: SinkEntry("two-phase commit", (SlotEntry(0, 2, STAGED),)),
        TABLE: SinkEntry("write-ahead log", (SlotEntry(0, 2, segment),)),
        SinkName("empty"): SinkEntry("write-ahead log", ()),
    }
    return Manifest(JOB, 7, 1, RUN, FINGERPRINT, AT, AT, sinks)


def manifest() -> Manifest:
    """With what version 2 has added."""
    first = first_manifest()
    target = {"engine of the table": "InnoDB", "unique indexes": "(id)"}
    sinks = {name: replace(entry, receipts_at=f"at {name}", target=target) for name, entry in first.sinks.items()}
    return replace(first, sinks=sinks, barrier=BARRIER, guarantee="exactly-once")


def marker() -> Marker:
    return Marker(6, FINGERPRINT, AT, TOTALS, DECISION, replace(manifest(), epoch=6))


def write_identities(storage: LocalStorage) -> None:
    for record in (FIRST, ACCEPTED):
        assert IdentityFile(storage).create(record) == record


def write_register(storage: LocalStorage) -> None:
    register = Register(storage)
    assert register.reserve(7, 1, RUN)
    assert register.decide_fate(7, 1, Fate.TAKEN) is Fate.TAKEN
    assert register.create_manifest(manifest())


def write_marker(storage: LocalStorage) -> None:
    SettledLog(storage).mark(marker())


def write_diversion(storage: LocalStorage) -> None:
    assert Diversions(storage).create(DIVERSION)


def write_resolution(storage: LocalStorage) -> None:
    assert Resolutions(storage).create(RESOLUTION) == RESOLUTION


def write_history(storage: LocalStorage) -> None:
    HistoryLog(storage).write(HISTORY, token="0123abcd")


def write_restore(storage: LocalStorage) -> None:
    write_down(storage, RESTORATION, by="ann@host", at=AT, because="a disk went bad")
    write_done(storage, RESTORATION)


def write_life(storage: LocalStorage) -> None:
    lives = LifeLog(storage, ManualClock())
    assert lives.create(BEGUN)
    lives.end(ENDED)


def write_topology(storage: LocalStorage) -> None:
    assert TopologyLog(storage).write(TOPOLOGY, since=7).number == 0


WRITERS: dict[str, Callable[[LocalStorage], None]] = {
    f"diverted/7.{sink_digest(TABLE)}": write_diversion,
    "history/7-8.2.0123abcd.json": write_history,
    "identity.1.json": write_identities,
    "identity.json": write_identities,
    "lives/3.begun": write_life,
    "lives/3.ended": write_life,
    "manifests/7.1.fate": write_register,
    "manifests/7.1.json": write_register,
    "manifests/7.1.reserved": write_register,
    "removed-20260102T030405678000Z.done": write_restore,
    "removed-20260102T030405678000Z.json": write_restore,
    "resolutions/0.json": write_resolution,
    "settled/6": write_marker,
    "topology/0.json": write_topology,
}


def test_every_golden_file_has_a_writer() -> None:
    assert WRITERS.keys() == WRITTEN.keys()


@pytest.mark.parametrize("path", WRITTEN)
def test_writing_the_same_values_yields_the_same_bytes(path: str, tmp_path: Path) -> None:
    WRITERS[path](LocalStorage(tmp_path))
    assert (tmp_path / path).read_bytes() == (WRITTEN[path] / path).read_bytes()


def test_identities_are_read_and_the_last_counts() -> None:
    assert IdentityFile(LocalStorage(FOLDER)).read() == FIRST_IDENTITY
    assert IdentityFile(LocalStorage(NEWER)).read() == IDENTITY
    assert IdentityFile(LocalStorage(THIRD)).read() == RESTORED
    assert IdentityFile(LocalStorage(NEWEST)).read() == ACCEPTED


def test_register_is_read() -> None:
    register = Register(LocalStorage(FOLDER))
    files = register.files(7)
    assert (files.manifests, files.reserved, files.fates) == ({1}, {1}, {1})
    assert register.taken(7, files) == 1
    assert register.manifest(7, 1) == first_manifest()
    assert Register(LocalStorage(NEWER)).manifest(7, 1) == manifest()


def test_resolution_is_read() -> None:
    assert Resolutions(LocalStorage(FOLDER)).read().all == (RESOLUTION,)


def test_history_is_read() -> None:
    assert HistoryLog(LocalStorage(FOLDER)).read() == HISTORY


def test_restore_is_read() -> None:
    assert read_down(LocalStorage(FOLDER), RESTORATION.folder) == RESTORATION


def test_a_life_is_read() -> None:
    assert LifeLog(LocalStorage(FOLDER), ManualClock()).read() == [Life(3, BEGUN, ENDED)]


def test_diversion_is_read() -> None:
    assert Diversions(LocalStorage(FOLDER)).all() == {(7, TABLE): DIVERSION}


def test_topology_is_read() -> None:
    assert TopologyLog(LocalStorage(FOLDER)).read() == TopologyRecord(0, 7, TOPOLOGY)


def test_settled_marker_is_read() -> None:
    settled = SettledLog(LocalStorage(FOLDER))
    assert settled.watermark() == 6
    assert settled.marker(6) == Marker(6, FINGERPRINT, AT, TOTALS)
    assert SettledLog(LocalStorage(NEWER)).marker(6) == marker()


@pytest.mark.parametrize("path", WRITTEN)
def test_a_newer_version_is_refused_by_name(path: str) -> None:
    header, _, body = (WRITTEN[path] / path).read_bytes().partition(b"\n")
    kind, version = header.split()[1].decode(), int(header.split()[2])
    newer = header.replace(b" %d sha256=" % version, b" %d sha256=" % (version + 1))
    with pytest.raises(DamagedFile, match=f"has version {version + 1}; this release reads up to {version}"):
        unseal(kind, newer + b"\n" + body, path=path)


@pytest.mark.parametrize(("folder", "path"), SEALED)
def test_a_file_of_one_kind_is_not_taken_for_another(folder: Path, path: str) -> None:
    with pytest.raises(DamagedFile):
        unseal("other", (folder / path).read_bytes(), path=path)


def test_sealed_document_is_what_docs_formats_says() -> None:
    assert seal("fate", {"fate": "é"}) == (
        b'onceward fate 1 sha256=3f780b36ef53f47e2313d2829041cb2ae60f7fc1e01ef82be66fb064d579dfea\n{"fate":"\xc3\xa9"}'
    )


def test_segment_is_found_by_its_name_and_read() -> None:
    storage = LocalStorage(FOLDER)
    handle = json.loads((GOLDEN / "segment-handle.json").read_text())
    assert [found["segment"] for found in SegmentStore(storage).pending(JOB)] == [handle["segment"]]
    assert pa.Table.from_batches(read_segment(storage, handle)) == pa.Table.from_batches([ROWS])


def test_segment_is_written_to_the_same_place_and_reads_the_same(tmp_path: Path) -> None:
    # Not the same bytes: those of a compressed Arrow stream are the business of the Arrow release that wrote it.
    storage = LocalStorage(tmp_path)
    golden = json.loads((GOLDEN / "segment-handle.json").read_text())
    writer = SegmentWriter(storage, SegmentStore(storage).path(context(WAL)), ROWS.schema)
    writer.write(ROWS)
    handle = writer.finish()
    assert {**handle, "transaction": str(context(WAL).transaction)}.keys() == golden.keys()
    assert (handle["segment"], handle["rows"]) == (golden["segment"], golden["rows"])
    with (
        pa.ipc.open_stream(tmp_path / str(handle["segment"])) as ours,
        pa.ipc.open_stream(FOLDER / golden["segment"]) as theirs,
    ):
        assert ours.schema.equals(theirs.schema, check_metadata=True)
        assert ours.schema.metadata == {b"onceward.segment": b"1"}
        assert ours.read_all() == theirs.read_all()


def test_names_are_spelled_and_parsed_alike() -> None:
    golden = json.loads((GOLDEN / "names.json").read_text())
    assert golden["job_digest"] == JOB.digest
    assert golden["sink_digest"] == {name: sink_digest(SinkName(name)) for name in (FILES, TABLE, WAL)}
    assert golden["fingerprint"] == {text: fingerprint_of(text.encode()) for text in golden["fingerprint"]}
    assert golden["transaction"] == str(context(FILES).transaction) == STAGED["transaction"]
    assert TransactionName.parse(golden["transaction"]) == context(FILES).transaction


def test_published_files_keep_their_names_and_are_receipts(tmp_path: Path) -> None:
    golden = json.loads((GOLDEN / "names.json").read_text())["files"]
    for format_, expected in golden.items():
        folder = tmp_path / format_
        sink = FileSink(folder, format=format_, name=FILES)
        transaction = sink.begin_transaction(context(FILES))
        sink.invoke(transaction, ROWS)
        handle = sink.pre_commit(transaction)
        assert [path.name for path in (folder / ".onceward").iterdir()] == [expected["staged"]]
        sink.commit(handle)
        assert [path.name for path in folder.iterdir() if path.is_file()] == [expected["published"]]
        assert set(sink.receipts(JOB)) == {Receipt(JOB.name, JOB.generation, FILES, 7, 0, FINGERPRINT)}
