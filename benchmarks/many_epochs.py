"""A checkpoint with a long history, made without Spark: what the dashboard and its benchmark are tried on."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from onceward.contracts import Guarantee
from onceward.contracts.events import StagedSlot, StateSize
from onceward.history import EpochRecord, HistoryLog
from onceward.history.record import SinkRecord
from onceward.identity import Fingerprint, Generation, JobName, RunId, SinkName
from onceward.journal import IdentityFile, IdentityRecord, Marker, SettledLog, SinkTotal
from onceward.storage import LocalStorage, directory_id_of

_TOGETHER = 500


def make_checkpoint(root: Path, *, epochs: int, slots: int, job: str = "page-views", seed: int = 7) -> None:
    """So many epochs a second apart, some slow, some that failed once; the newest ended a moment ago."""
    chance = random.Random(seed)
    folder = root / "onceward"
    folder.mkdir(parents=True)
    storage = LocalStorage(folder)
    IdentityFile(storage).create(
        IdentityRecord(
            0,
            JobName(job),
            Generation("5f1c2a7e"),
            (),
            -1,
            directory_id_of(folder),
            guarantee=Guarantee("exactly-once"),
        )
    )
    _logs(root, epochs)
    end = datetime.now(UTC)
    history, records = HistoryLog(storage), []
    for epoch in range(epochs):
        at = end - timedelta(seconds=1.4 * (epochs - epoch))
        records += _attempts(epoch, at, slots, chance, RunId(f"{1 + epoch * 5 // epochs:08x}"))
        if len(records) >= _TOGETHER or epoch == epochs - 1:
            history.write(records)
            records = []
    total = SinkTotal("two-phase commit: PREPARE TRANSACTION", "exactly-once", slots, 4000)
    SettledLog(storage).mark(
        Marker(
            epochs - 1, Fingerprint("0" * 16), end, {SinkName("postgres:views"): total, SinkName("files:log"): total}
        )
    )


def _logs(root: Path, epochs: int) -> None:
    for name in ("offsets", "commits"):
        (root / name).mkdir()
    for epoch in range(max(0, epochs - 100), epochs):
        metadata = {
            "batchWatermarkMs": 0,
            "batchTimestampMs": 1_700_000_000_000,
            "conf": {"spark.sql.shuffle.partitions": "8"},
        }
        kafka = {"views": {str(partition): epoch * 500 + partition for partition in range(4)}}
        (root / "offsets" / str(epoch)).write_text(f"v1\n{json.dumps(metadata)}\n{json.dumps(kafka)}")
        (root / "commits" / str(epoch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def _attempts(epoch: int, at: datetime, slots: int, chance: random.Random, run: RunId) -> list[EpochRecord]:
    failed = chance.random() < 0.004
    found = [_record(epoch, at, slots, chance, run, takeover=int(chance.random() < 0.002))]
    if failed:
        times = {"barrier": at, "begun": at, "failed": at + timedelta(seconds=0.4)}
        why = "connection to server was lost while rows were copied"
        found.insert(0, EpochRecord(epoch, run, "failed", times=times, error="TargetUnavailable", why=why))
    return found


def _record(epoch: int, at: datetime, slots: int, chance: random.Random, run: RunId, *, takeover: int) -> EpochRecord:
    slow = chance.choice((1, 1, 1, 1, 1, 1, 1, 1, 1, 4)) * chance.uniform(0.8, 1.5)
    steps = {"barrier": 0.0, "begun": 0.03, "staged": 0.42, "pre_committed": 0.45, "decided": 0.52, "delivered": 0.75}
    times = {step: at + timedelta(seconds=after * slow) for step, after in steps.items()}
    times["settled"] = times["delivered"] + timedelta(milliseconds=12)
    acked = [times["begun"] + timedelta(seconds=chance.uniform(0.1, 0.38) * slow) for _ in range(slots)]
    staged = tuple(StagedSlot(n, 4000 // slots, 90_000 // slots, f"host-{n % 4}", acked[n]) for n in range(slots))
    sinks = {
        SinkName(name): SinkRecord(4000, slots, times["decided"], times["delivered"], retries=int(slow > 4))
        for name in ("postgres:views", "files:log")
    }
    return EpochRecord(
        epoch,
        run,
        "settled",
        takeover=takeover,
        guarantee="exactly-once",
        times=times,
        rows=int(4000 * chance.uniform(0.7, 1.2)),
        bytes=90_000,
        slot_count=slots,
        slots=staged,
        sinks=sinks,
        engine_ms={"latestOffset": 4, "queryPlanning": 9, "getBatch": 3, "walCommit": 14, "addBatch": 600},
        input_rows=4000,
        sources={"KafkaV2[Subscribe[views]]": json.dumps({"views": {"0": epoch * 500, "1": epoch * 500 + 1}})},
        state=(StateSize("stateStoreSave", 1200 + epoch, 400_000 + epoch * 90, 21),),
    )
