"""What a savepoint says of itself keeps its form. Golden files are never edited: see `test_golden`."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from onceward.contracts import Guarantee
from onceward.errors import DamagedFile, NewerFormat
from onceward.identity import Fingerprint, Generation, JobName, SinkName
from onceward.journal import SinkTotal
from onceward.operators import Column, Operator, SourceInfo, Topology
from onceward.savepoints import Savepoint
from onceward.savepoints.document import Parent, SavedFile

GOLDEN = Path(__file__).parent / "golden" / "v1" / "savepoint" / "savepoint.json"
SAVEPOINT = Savepoint(
    id="k3zq2dva",
    job=JobName("app-pv é"),
    generation=Generation("abcdefgh"),
    known=(Generation("zzzzzzzz"),),
    epoch=7,
    fingerprint=Fingerprint("fingerprintabcde"),
    taken_at=datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    onceward="0.5.0",
    spark="4.3.0",
    origin="/data/é/checkpoint",
    barrier='v1\n{"batchWatermarkMs":0,"batchTimestampMs":1767323045678,"conf":{}}\n{"logOffset":7}',
    query="2e6c4492-d998-4939-b5fd-6c44ff104fae",
    guarantee=Guarantee.EXACTLY_ONCE,
    parent=Parent(Generation("zzzzzzzz"), 4, "d5xw7aab"),
    ancestors={Generation("zzzzzzzz"): 4},
    sinks={SinkName("files:pv"): SinkTotal("two-phase commit", "exactly-once", 2, 5)},
    topology=Topology(
        (Operator(0, "dedupe", "by user é", (Column("user", "string"),), 1, ("default",)),),
        (SourceInfo(0, "FileSource", "views"),),
        ("files:pv",),
    ),
    files={
        "commits/7": SavedFile(29, 0xF32C3C3D),
        "offsets/6": SavedFile(116, 0x0000ABCD),
        "offsets/7": SavedFile(116, 0x63520118),
        "sources/0/7": SavedFile(90, 0x12345678),
        "state/0/0/8.delta": SavedFile(1 << 33, 0xFFFFFFFF),
    },
)


def test_a_savepoint_is_written_and_read_as_ever() -> None:
    assert SAVEPOINT.sealed() == GOLDEN.read_bytes()
    assert Savepoint.unsealed(GOLDEN.read_bytes(), path="savepoint.json") == SAVEPOINT


def test_a_savepoint_without_what_may_be_missing_comes_back_the_same() -> None:
    bare = replace(SAVEPOINT, query=None, guarantee=None, parent=None, ancestors={}, sinks={}, topology=Topology())
    assert Savepoint.unsealed(bare.sealed(), path="savepoint.json") == bare


def test_a_newer_version_is_named_and_a_flipped_bit_refused() -> None:
    data = GOLDEN.read_bytes()
    with pytest.raises(NewerFormat):
        Savepoint.unsealed(data.replace(b"savepoint 1 ", b"savepoint 2 ", 1), path="savepoint.json")
    for place in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[place] ^= 1
        with pytest.raises(DamagedFile):
            Savepoint.unsealed(bytes(flipped), path="savepoint.json")
