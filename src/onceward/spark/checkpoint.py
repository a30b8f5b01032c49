"""Spark's own checkpoint directory: the barriers in `offsets/`, the decisions in `commits/`.

They are read, and forced to the disk, which Spark does not do. Only recovery writes there, and only to put right what a
power loss has torn (`recovery/repair.py`). No pyspark is needed, so the command line works beside a running job.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from onceward.contracts import Barrier, Log
from onceward.errors import DamagedFile, StorageFailed
from onceward.identity import fingerprint_of
from onceward.spark.ahead import Ahead
from onceward.storage import sync_file, sync_file_system, sync_folder

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True)
class SparkLogs:
    """`DecisionLog` over a checkpoint directory.

    An epoch is decided when `commits/` has reached it. It is decided as well when `offsets/` has gone past it: Spark
    plans N+1 only after it committed N, and on a restart it resumes at its newest barrier without a look at the commits
    before it. So when a power loss forgets `commits/N` but not `offsets/N+1`, epoch N never runs again; whoever took it
    for undecided would throw its rows away. Async progress tracking, which breaks this order, is refused.
    """

    root: Path
    _ahead: Ahead = field(default_factory=Ahead, compare=False, repr=False)

    def decided(self) -> int:
        """See `DecisionLog.decided`."""
        committed = self._highest("commits")
        if committed >= 0:
            self._entry("commits", committed)
        return max(committed, self.planned() - 1)

    def planned(self) -> int:
        """See `DecisionLog.planned`."""
        return self._highest("offsets")

    def oldest(self) -> int | None:
        """The lowest entry of the offset log: what came before it Spark has removed. None where there is none."""
        return min(self._numbers("offsets"), default=None)

    def barrier(self, epoch: int) -> Barrier | None:
        """See `DecisionLog.barrier`."""
        lines = self._entry("offsets", epoch)
        if lines is None:
            return None
        metadata = self._metadata(epoch, lines)
        milliseconds = metadata.get("batchTimestampMs", 0)
        timestamp = datetime.fromtimestamp(milliseconds / 1000, UTC)
        text = "\n".join(lines)
        return Barrier(epoch, fingerprint_of(text.encode()), timestamp, text)

    def decision(self, epoch: int) -> str | None:
        """See `DecisionLog.decision`."""
        lines = self._entry("commits", epoch)
        return None if lines is None else "\n".join(lines)

    def sources(self, epoch: int) -> list[str]:
        """Where the epoch ends in each source, one line each, as the source wrote it; none without an entry."""
        return [position for _, position in self._positions(epoch)]

    def source_names(self, epoch: int) -> list[str | None]:
        """What Spark calls each source of the epoch: a name, where the user has given them (`readStream.name`), or
        nothing, and then their order tells them apart."""
        return [name for name, _ in self._positions(epoch)]

    def _positions(self, epoch: int) -> list[tuple[str | None, str]]:
        lines = self._entry("offsets", epoch) if epoch >= 0 else None
        if lines is None:
            return []
        if lines[0] != "v2":
            return [(None, line) for line in lines[2:]]
        return [(name, position) for name, _, position in (line.partition(":") for line in lines[2:])]

    def pinned(self) -> dict[str, str]:
        """The settings that the newest epoch has, and every one after it: Spark goes by these, whatever the session
        says. None where there is no epoch, or it cannot be read."""
        with contextlib.suppress(DamagedFile, ValueError):
            newest = self.planned()
            if (lines := self._entry("offsets", newest)) is not None:
                settings = self._metadata(newest, lines).get("conf")
                return {key: str(value) for key, value in settings.items()} if isinstance(settings, dict) else {}
        return {}

    def shuffle_partitions(self) -> int | None:
        """How many the newest epoch has, and every one after it; None where there is none, or it cannot be read."""
        with contextlib.suppress(ValueError):
            return int(self.pinned().get(_SHUFFLE_PARTITIONS) or 0) or None
        return None

    def keeps_state(self) -> bool:
        """Whether any operator of the query has kept state here."""
        return bool(_folders(self.root / "state"))

    def has_changelogs(self) -> bool:
        """Whether the state is in RocksDB, with incremental checkpoints."""
        return any(True for _ in (self.root / "state").glob("*/0/**/*.changelog"))

    def decided_at(self) -> float | None:
        """When the newest decision was written, by the clock of the file system; None before the first."""
        try:
            return (self.root / "commits" / str(self._highest("commits"))).stat().st_mtime
        except FileNotFoundError:
            return None

    def is_engine_made(self, epoch: int) -> bool:
        """Same source positions as the epoch before, but another number of state partitions.

        Only offline repartitioning does that: a running query takes the number from its checkpoint and keeps it.
        """
        lines, before = self._entry("offsets", epoch), self._entry("offsets", epoch - 1)
        if lines is None or before is None or lines[2:] != before[2:]:
            return False
        partitions, partitions_before = (
            self._metadata(number, entry).get("conf", {}).get(_SHUFFLE_PARTITIONS)
            for number, entry in ((epoch, lines), (epoch - 1, before))
        )
        return bool(partitions != partitions_before)

    def sync_barrier(self, epoch: int) -> None:
        """See `DecisionLog.sync_barrier`. Spark's file sources keep lists of their own, which a barrier refers to. The
        state may be in hundreds of files: their file system is synced as a whole."""
        with self._os_errors_as_storage_failed():
            if (self.root / "state").is_dir():
                self._ahead.raise_error()
                sync_file_system(self.root)
            elif not self._ahead.has_synced(entries := self._entries_of(epoch)):
                self._sync_entries(entries)

    def sync_ahead(self, epoch: int) -> None:
        """Do what `sync_barrier` will have to, while the epoch is still computed. Not where there is state: that is
        written only at the end of it. Never raises: whoever needs it to be done is told."""
        if not (self.root / "state").is_dir():
            self._ahead.sync(partial(self._entries_of, epoch), self._sync_entries)

    def _entries_of(self, epoch: int) -> list[Path]:
        """What a barrier rests on."""
        lists = [newest for source in _folders(self.root / "sources") if (newest := _newest(source)) is not None]
        entries = [self.root / "offsets" / str(epoch), self.root / "commits" / str(epoch - 1), *lists]
        return [self.root / "metadata", *entries]

    def _sync_entries(self, entries: Sequence[Path]) -> None:
        for path in entries:
            _sync_with_checksum(path)
        for folder in (*({path.parent for path in entries} - {self.root}), self.root / "sources", self.root):
            _sync_if_there(folder)

    def sync_decision(self, epoch: int) -> None:
        """See `DecisionLog.sync_decision`."""
        with self._os_errors_as_storage_failed():
            _sync_with_checksum(self.root / "commits" / str(epoch))
            _sync_if_there(self.root / "commits")
            _sync_if_there(self.root)

    def entries(self, log: Log) -> dict[int, str | None]:
        """See `DecisionLog.entries`."""
        found: dict[int, str | None] = {}
        for epoch in self._numbers(log.value):
            with contextlib.suppress(FileNotFoundError):
                found[epoch] = self._text(log.value, epoch)
        return found

    def put_back(self, log: Log, epoch: int, text: str) -> None:
        """See `DecisionLog.put_back`. Spark makes a checksum file beside each entry, and does without one."""
        path = self.root / log.value / str(epoch)
        unfinished = path.with_name(f".{epoch}.{secrets.token_hex(8)}.tmp")
        with self._os_errors_as_storage_failed():
            path.parent.mkdir(exist_ok=True)
            _checksum_of(path).unlink(missing_ok=True)
            unfinished.write_text(text)
            sync_file(unfinished)
            os.rename(unfinished, path)
            sync_folder(path.parent)

    def drop(self, log: Log, epoch: int, seen: str | None) -> None:
        """See `DecisionLog.drop`."""
        path = self.root / log.value / str(epoch)
        with self._os_errors_as_storage_failed(), contextlib.suppress(FileNotFoundError):
            if self._text(log.value, epoch) != seen:
                return
            path.unlink(missing_ok=True)
            _checksum_of(path).unlink(missing_ok=True)
            sync_folder(path.parent)

    def torn_lists(self) -> dict[str, bool]:
        """See `DecisionLog.torn_lists`. Only the newest of a source can be un-synced."""
        newest = [path for source in _folders(self.root / "sources") if (path := _newest(source)) is not None]
        torn = [path for path in newest if _is_torn(path.read_bytes())]
        return {path.relative_to(self.root).as_posix(): self._is_unplanned(path) for path in torn}

    def _is_unplanned(self, path: Path) -> bool:
        """Whether the newest barrier ends before this list of a file source; False where that cannot be told."""
        try:
            positions = self.sources(self.planned())
            end = json.loads(positions[int(path.parent.name)])["logOffset"] if positions else -1
            return int(_number_of(path)) > int(end)
        except (DamagedFile, ValueError, LookupError, TypeError):
            return False

    def drop_list(self, path: str) -> None:
        """See `DecisionLog.drop_list`."""
        with self._os_errors_as_storage_failed():
            (self.root / path).unlink(missing_ok=True)
            _checksum_of(self.root / path).unlink(missing_ok=True)
            sync_folder((self.root / path).parent)

    def _numbers(self, log: str) -> list[int]:
        try:
            return [int(path.name) for path in (self.root / log).iterdir() if path.name.isdigit()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _highest(self, log: str) -> int:
        return max(self._numbers(log), default=-1)

    def _text(self, log: str, epoch: int) -> str | None:
        """An entry's text, None when it is torn: empty, cut before its metadata ends, or with blocks never written."""
        try:
            text = (self.root / log / str(epoch)).read_text()
            version, metadata = text.split("\n")[:2]
            json.loads(metadata)
        except (UnicodeDecodeError, ValueError):
            return None
        return text if version.startswith("v") and "\0" not in text else None

    def _entry(self, log: str, epoch: int) -> list[str] | None:
        """The lines of an entry; None when there is none; `DamagedFile` when it is cut short."""
        try:
            text = self._text(log, epoch)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if text is None:
            raise DamagedFile(
                f"Spark's log entry {log}/{epoch} is empty or torn",
                epoch=epoch,
                hint="a start repairs what a power loss tears; if it is a start that says so, nothing tells what stood "
                f"there: restore it, or remove {log}/{epoch} and its .crc so that the epoch runs again",
            )
        return text.split("\n")

    def _metadata(self, epoch: int, lines: list[str]) -> dict[str, Any]:
        document = json.loads(lines[1])
        return document if isinstance(document, dict) else {}

    @contextlib.contextmanager
    def _os_errors_as_storage_failed(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageFailed(
                f"Spark's logs in {self.root} cannot be forced to the disk: {error.strerror or error}",
                hint="check free space, permissions and mounts; nothing was lost, start again afterwards",
            ) from error


def _folders(parent: Path) -> list[Path]:
    return [path for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []


def _newest(folder: Path) -> Path | None:
    """The newest numbered file; a source compacts its list now and then, under the number it would have had."""
    numbered = [path for path in folder.iterdir() if _number_of(path).isdigit()]
    return max(numbered, key=lambda path: int(_number_of(path)), default=None)


def _number_of(path: Path) -> str:
    return path.name.partition(".")[0]


def _is_torn(data: bytes) -> bool:
    """Empty, or of blocks that were never written. (Kafka's source puts one zero byte before its text.)"""
    return not data.strip(b"\0")


def _checksum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def _sync_with_checksum(path: Path) -> None:
    _sync_if_there(path)
    _sync_if_there(_checksum_of(path))


def _sync_if_there(path: Path) -> None:
    """An entry may have been purged meanwhile, or the query has no such log; what is not there needs no syncing."""
    with contextlib.suppress(FileNotFoundError):
        sync_file(path)
