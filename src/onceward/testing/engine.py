"""An engine with Spark's semantics and no Spark: two logs, a replayable source, tasks with attempts.

It keeps `offsets/N` and `commits/N` as Spark does and resumes from them as Spark does, down to what Spark does *not*
do: its commit log is checked first and written later, and nothing fences a second driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from onceward.contracts import Barrier, Clock, DecisionLog, Log
from onceward.errors import DamagedFile
from onceward.identity import fingerprint_of
from onceward.spark.checkpoint import SparkLogs
from onceward.testing.fakes import Loss, Unsynced

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("key", pa.int64()),
        ("epoch", pa.int64()),
        ("slot", pa.int64()),
        ("version", pa.string()),
        ("attempt", pa.int64()),
    ]
)
"""`version` names the computation and `attempt` the task attempt: the nondeterminism of `rand()` made visible."""


class ConcurrentUpdate(Exception):
    """What Spark raises when its log already has the entry: another query runs on this checkpoint."""


@dataclass(frozen=True, slots=True)
class Source:
    """A replayable source: row i has id i. `ends[N]` is where epoch N ends; two equal ends make an empty epoch."""

    ends: tuple[int, ...]
    keys: int = 3

    def ids(self) -> range:
        """Every row that must arrive."""
        return range(self.ends[-1] if self.ends else 0)

    def rows_of(self, epoch: int) -> range:
        """The ids between two barriers."""
        return range(self.ends[epoch - 1] if epoch else 0, self.ends[epoch])


class EngineLogs(DecisionLog, Protocol):
    """The two logs with their writing side, which only the engine uses."""

    def plan(self, epoch: int, text: str) -> None:
        """Write `offsets/N`."""
        ...

    def commit(self, epoch: int, text: str) -> None:
        """Write `commits/N`, over whatever is there."""
        ...

    def is_planned(self, epoch: int) -> bool:
        """Whether `offsets/N` exists."""
        ...

    def is_committed(self, epoch: int) -> bool:
        """Whether `commits/N` exists; not the same as decided, for Spark purges and disks forget."""
        ...

    def forget_commit(self, epoch: int) -> None:
        """Remove `commits/N`: a power loss, or a hand."""
        ...

    def purge(self, below: int) -> None:
        """Remove entries of both logs below an epoch, as Spark does now and then."""
        ...


class DirectoryLogs:
    """The logs as files in Spark's format; all reading is done by the real reader."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._reader = SparkLogs(root)
        for log in ("offsets", "commits"):
            (root / log).mkdir(parents=True, exist_ok=True)

    def plan(self, epoch: int, text: str) -> None:
        """See `EngineLogs.plan`."""
        (self.root / "offsets" / str(epoch)).write_text(text)

    def commit(self, epoch: int, text: str) -> None:
        """See `EngineLogs.commit`."""
        (self.root / "commits" / str(epoch)).write_text(text)

    def is_planned(self, epoch: int) -> bool:
        """See `EngineLogs.is_planned`."""
        return (self.root / "offsets" / str(epoch)).exists()

    def is_committed(self, epoch: int) -> bool:
        """See `EngineLogs.is_committed`."""
        return (self.root / "commits" / str(epoch)).exists()

    def forget_commit(self, epoch: int) -> None:
        """See `EngineLogs.forget_commit`."""
        (self.root / "commits" / str(epoch)).unlink(missing_ok=True)

    def purge(self, below: int) -> None:
        """See `EngineLogs.purge`."""
        for log in ("offsets", "commits"):
            for path in list((self.root / log).iterdir()):
                if path.name.isdigit() and int(path.name) < below:
                    path.unlink()

    def decided(self) -> int:
        """See `DecisionLog.decided`."""
        return self._reader.decided()

    def planned(self) -> int:
        """See `DecisionLog.planned`."""
        return self._reader.planned()

    def barrier(self, epoch: int) -> Barrier | None:
        """See `DecisionLog.barrier`."""
        return self._reader.barrier(epoch)

    def decision(self, epoch: int) -> str | None:
        """See `DecisionLog.decision`."""
        return self._reader.decision(epoch)

    def is_engine_made(self, epoch: int) -> bool:
        """See `DecisionLog.is_engine_made`."""
        return self._reader.is_engine_made(epoch)

    def sync_barrier(self, epoch: int) -> None:
        """See `DecisionLog.sync_barrier`."""
        self._reader.sync_barrier(epoch)

    def sync_decision(self, epoch: int) -> None:
        """See `DecisionLog.sync_decision`."""
        self._reader.sync_decision(epoch)

    def entries(self, log: Log) -> Mapping[int, str | None]:
        """See `DecisionLog.entries`."""
        return self._reader.entries(log)

    def put_back(self, log: Log, epoch: int, text: str) -> None:
        """See `DecisionLog.put_back`."""
        self._reader.put_back(log, epoch, text)

    def drop(self, log: Log, epoch: int, seen: str | None) -> None:
        """See `DecisionLog.drop`."""
        self._reader.drop(log, epoch, seen)

    def torn_lists(self) -> Mapping[str, bool]:
        """See `DecisionLog.torn_lists`."""
        return self._reader.torn_lists()

    def drop_list(self, path: str) -> None:
        """See `DecisionLog.drop_list`."""
        self._reader.drop_list(path)


@dataclass(slots=True)
class MemoryLogs:
    """The logs in memory; a shared test holds it to what `DirectoryLogs` answers. A torn entry is an empty one.

    What was written and not synced is remembered, and `lose_power` takes it.
    """

    offsets: dict[int, str] = field(default_factory=dict)
    commits: dict[int, str] = field(default_factory=dict)
    unsynced: set[tuple[Log, int]] = field(default_factory=set)

    def plan(self, epoch: int, text: str) -> None:
        """See `EngineLogs.plan`."""
        self.offsets[epoch] = text
        self.unsynced.add((Log.OFFSETS, epoch))

    def commit(self, epoch: int, text: str) -> None:
        """See `EngineLogs.commit`."""
        self.commits[epoch] = text
        self.unsynced.add((Log.COMMITS, epoch))

    def is_planned(self, epoch: int) -> bool:
        """See `EngineLogs.is_planned`."""
        return epoch in self.offsets

    def is_committed(self, epoch: int) -> bool:
        """See `EngineLogs.is_committed`."""
        return epoch in self.commits

    def forget_commit(self, epoch: int) -> None:
        """See `EngineLogs.forget_commit`."""
        self.commits.pop(epoch, None)

    def purge(self, below: int) -> None:
        """See `EngineLogs.purge`."""
        self.offsets = {n: text for n, text in self.offsets.items() if n >= below}
        self.commits = {n: text for n, text in self.commits.items() if n >= below}

    def decided(self) -> int:
        """See `DecisionLog.decided`."""
        committed = max(self.commits, default=-1)
        self._whole(Log.COMMITS, committed)
        return max(committed, self.planned() - 1)

    def planned(self) -> int:
        """See `DecisionLog.planned`."""
        return max(self.offsets, default=-1)

    def barrier(self, epoch: int) -> Barrier | None:
        """See `DecisionLog.barrier`."""
        text = self._whole(Log.OFFSETS, epoch)
        if text is None:
            return None
        milliseconds = json.loads(text.split("\n")[1])["batchTimestampMs"]
        return Barrier(epoch, fingerprint_of(text.encode()), datetime.fromtimestamp(milliseconds / 1000, UTC), text)

    def decision(self, epoch: int) -> str | None:
        """See `DecisionLog.decision`."""
        return self._whole(Log.COMMITS, epoch)

    def is_engine_made(self, epoch: int) -> bool:
        """See `DecisionLog.is_engine_made`."""
        text, before = self._whole(Log.OFFSETS, epoch), self._whole(Log.OFFSETS, epoch - 1)
        if text is None or before is None or text.split("\n")[2:] != before.split("\n")[2:]:
            return False
        conf, conf_before = (json.loads(entry.split("\n")[1]).get("conf", {}) for entry in (text, before))
        return bool(conf != conf_before)

    def sync_barrier(self, epoch: int) -> None:
        """See `DecisionLog.sync_barrier`."""
        self.unsynced -= {(Log.OFFSETS, epoch), (Log.COMMITS, epoch - 1)}

    def sync_decision(self, epoch: int) -> None:
        """See `DecisionLog.sync_decision`."""
        self.unsynced -= {(Log.COMMITS, epoch)}

    def entries(self, log: Log) -> Mapping[int, str | None]:
        """See `DecisionLog.entries`."""
        return {epoch: text or None for epoch, text in self._of(log).items()}

    def put_back(self, log: Log, epoch: int, text: str) -> None:
        """See `DecisionLog.put_back`."""
        self._of(log)[epoch] = text
        self.unsynced -= {(log, epoch)}

    def drop(self, log: Log, epoch: int, seen: str | None) -> None:
        """See `DecisionLog.drop`."""
        if self._of(log).get(epoch) == (seen or ""):
            del self._of(log)[epoch]

    def torn_lists(self) -> Mapping[str, bool]:
        """See `DecisionLog.torn_lists`. Its source keeps none."""
        return {}

    def drop_list(self, path: str) -> None:
        """See `DecisionLog.drop_list`."""

    def lose_power(self, loss: Loss) -> None:
        """Everything that was not synced is torn or gone, as is drawn for each entry."""
        for log, epoch in sorted(self.unsynced, key=str):
            if epoch in self._of(log):
                fate = loss()
                if fate is Unsynced.EMPTY:
                    self._of(log)[epoch] = ""
                elif fate is Unsynced.GONE:
                    del self._of(log)[epoch]
        self.unsynced.clear()

    def _of(self, log: Log) -> dict[int, str]:
        return self.offsets if log is Log.OFFSETS else self.commits

    def _whole(self, log: Log, epoch: int) -> str | None:
        text = self._of(log).get(epoch)
        if text == "":
            raise DamagedFile(f"Spark's log entry {log.value}/{epoch} is empty or torn", epoch=epoch)
        return text


def offsets_entry(end: int, *, at: datetime, shuffle_partitions: int = 200) -> str:
    """An entry of the offset log as Spark 4 writes it, for one source that ends at `end`."""
    metadata = {
        "batchWatermarkMs": 0,
        "batchTimestampMs": int(at.timestamp() * 1000),
        "conf": {"spark.sql.shuffle.partitions": str(shuffle_partitions)},
    }
    return f"v1\n{json.dumps(metadata, separators=(',', ':'))}\n{json.dumps({'end': end})}"


COMMITS_ENTRY = 'v1\n{"nextBatchWatermarkMs":0}'


@dataclass(frozen=True, slots=True)
class Batch:
    """One computation of one epoch: what `foreachBatch` gets. Another computation of it has another `version`."""

    epoch: int
    slots: int
    version: str
    ids: range
    keys: int
    rows_in_a_batch: int = 1000

    def slot(self, number: int, attempt: int) -> Iterator[pa.RecordBatch]:
        """The rows of one slot as this attempt computes them. A key's rows are all in one slot, in order."""
        ids = [i for i in self.ids if i % self.keys % self.slots == number]
        if not ids:
            return
        keys, count = [i % self.keys for i in ids], len(ids)
        columns = (ids, keys, [self.epoch] * count, [number] * count, [self.version] * count, [attempt] * count)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        whole = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        for start in range(0, len(ids), self.rows_in_a_batch):
            yield whole.slice(start, self.rows_in_a_batch)


@dataclass(slots=True)
class Engine:
    """One life of a driver's engine. `run` is Spark's micro-batch loop."""

    logs: EngineLogs
    source: Source
    clock: Clock
    run_name: str = "run"
    partitions: Callable[[int], int] = lambda epoch: 2
    keep_entries: int | None = None
    rows_in_a_batch: int = 1000
    _computations: int = 0

    def resume(self) -> tuple[int, bool]:
        """The epoch to run next, and whether it has a barrier already. Lower epochs are never looked at again."""
        latest = self.logs.planned()
        if latest >= 0 and not self.logs.is_committed(latest):
            return latest, True
        return latest + 1, False

    def run(
        self,
        foreach_batch: Callable[[Batch], None],
        *,
        on_progress: Callable[[int], None] = lambda epoch: None,
        until: int | None = None,
    ) -> int:
        """Run epochs until the source is drained (or past `until`); the last epoch that was run, -1 for none."""
        epoch, planned = self.resume()
        last = -1
        while epoch < len(self.source.ends) and (until is None or epoch <= until):
            if not planned:
                self._plan(epoch)
            foreach_batch(self._compute(epoch))
            self._commit(epoch)
            on_progress(epoch)
            last, epoch, planned = epoch, epoch + 1, False
        return last

    def _plan(self, epoch: int) -> None:
        if self.logs.is_planned(epoch):
            raise ConcurrentUpdate(f"offsets/{epoch} exists")
        self.logs.plan(epoch, offsets_entry(self.source.ends[epoch], at=self.clock.now()))

    def _commit(self, epoch: int) -> None:
        if self.logs.is_committed(epoch):
            raise ConcurrentUpdate(f"commits/{epoch} exists")
        self.logs.commit(epoch, COMMITS_ENTRY)
        if self.keep_entries is not None:
            self.logs.purge(epoch + 1 - self.keep_entries)

    def _compute(self, epoch: int) -> Batch:
        self._computations += 1
        return Batch(
            epoch=epoch,
            slots=self.partitions(epoch),
            version=f"{self.run_name}.{self._computations}",
            ids=self.source.rows_of(epoch),
            keys=self.source.keys,
            rows_in_a_batch=self.rows_in_a_batch,
        )
