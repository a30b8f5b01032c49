"""Taking a savepoint of a checkpoint, at rest or while its job runs: the newest epoch that is decided and published.

Spark's files are written once and kept for `minBatchesToRetain` epochs, so that a running job is not held up. What is
purged before it was copied makes the take begin again, at a newer epoch. On the way every byte is compared with the
checksums that Hadoop keeps beside it: damage is not sealed.

Crashes: until the last rename there is only a hidden folder, which the next take removes. The rename makes all of it
visible at once, and it comes after everything was forced to the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from onceward.contracts import Clock, Severity
from onceward.errors import ConfigurationError, DamagedFile, OncewardError, StorageFailed
from onceward.identity import fingerprint_of, new_generation
from onceward.journal import IdentityRecord
from onceward.operators import read_topology
from onceward.savepoints.choose import Unready, files_at
from onceward.savepoints.copying import FULL_SPEED, Pace, copy_file, of_each, opened, sum_file
from onceward.savepoints.document import CONTENT, FILE, Parent, SavedFile, Savepoint
from onceward.savepoints.hadoop_sums import whole_crc
from onceward.savepoints.place import (
    Unfinished,
    is_savepoint,
    os_errors_as_storage_failed,
    savepoint_name,
    unfinished,
)
from onceward.savepoints.progress import Progress
from onceward.savepoints.schema_paths import is_description, made_relative
from onceward.storage import LocalStorage
from onceward.verify.files import Files
from onceward.verify.logs import read_logs
from onceward.verify.look import Seen, look, see
from onceward.verify.report import MOVE
from onceward.version import __version__

ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Taken:
    """A savepoint, and where it is."""

    path: Path
    savepoint: Savepoint


def take(
    root: Path,
    folder: Path,
    *,
    clock: Clock,
    spark: str,
    progress: Progress | None = None,
    pace: Pace = FULL_SPEED,
) -> Taken:
    """Make a savepoint of the checkpoint `root` in `folder`; `spark` is the version of Spark there."""
    progress, taker = progress or Progress(), _Taker(root, clock, spark, pace)
    refuse_folder(root, folder)
    before: Unready | None = None
    try:
        with os_errors_as_storage_failed("write a savepoint into", folder):
            for _ in range(ATTEMPTS):
                try:
                    return taker.once(folder, progress)
                except Unready as found:
                    # One that runs has purged it; what is lost or damaged is so at the second look, too.
                    if before is not None and (before.path, before.why) == (found.path, found.why):
                        raise _lost(root, found) from found
                    before, taker = found, replace(taker, pace=taker.pace.hurried())
                    clock.pause(_PAUSE_S)
    finally:
        progress.end()
    raise StorageFailed(
        f"{root} changes faster than it can be copied: {ATTEMPTS} times files were purged before they were copied",
        hint="let Spark keep more epochs (spark.sql.streaming.minBatchesToRetain), or stop the job with "
        "`onceward stop --savepoint`",
    )


def refuse_folder(root: Path, folder: Path) -> None:
    """Before anything is written: a place in which no savepoint can lie."""
    if folder == root or root in folder.parents:
        raise ConfigurationError(f"{folder} is inside the checkpoint", hint="choose a folder outside of it")
    if is_savepoint(folder):
        raise ConfigurationError(
            f"{folder} is a savepoint",
            hint="give the folder in which the new one is to be made, for example its parent",
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder", hint="give a folder, or a name that is free")


@dataclass(frozen=True, slots=True)
class _Taker:
    root: Path
    clock: Clock
    spark: str
    pace: Pace

    def once(self, folder: Path, progress: Progress) -> Taken:
        """One attempt; `Unready` where something vanished, or is not as it was written."""
        seen = see(self.root, quick=True)
        record, epoch = settled_epoch(seen)
        chosen = files_at(seen.view.files, seen.view.logs, epoch)
        identifier = str(new_generation())
        target = folder / savepoint_name(record.job, epoch, identifier)
        with unfinished(folder, target.name) as made:
            files = self._copied(chosen, made, progress)
            self._check_unchanged(seen, made, epoch)
            _check_closed(made, epoch, chosen)
            savepoint = self._described(seen, record, epoch, identifier, files)
            LocalStorage(made.path).create(FILE, savepoint.sealed())
            made.become(target)
        return Taken(target, savepoint)

    def _check_unchanged(self, seen: Seen, made: Unfinished, epoch: int) -> None:
        """Purged meanwhile; or taken back to an earlier epoch and computed anew, and half of the state is of either."""
        for root in (made.path / CONTENT, self.root):
            found = Files(root).read(f"offsets/{epoch}")
            if found is None or found.decode(errors="replace") != seen.view.logs.offsets[epoch].text:
                what = "purged" if found is None else "replaced"
                raise Unready(f"offsets/{epoch}", f"it was {what} while it was copied")

    def _copied(self, chosen: list[str], made: Unfinished, progress: Progress) -> dict[str, SavedFile]:
        content, source = made.path / CONTENT, Files(self.root)
        _refuse_links(self.root, chosen)
        try:
            progress.begin(sum((self.root / path).stat().st_size for path in chosen))
            for folder in sorted({(content / path).parent for path in chosen}):
                folder.mkdir(parents=True, exist_ok=True)
            saved = of_each(lambda path: self._copy(source, path, content, progress), chosen, self.pace.workers)
            return dict(zip(chosen, saved, strict=True))
        except FileNotFoundError as error:
            raise Unready(str(error.filename), "it is gone") from error

    def _copy(self, source: Files, path: str, content: Path, progress: Progress) -> SavedFile:
        """Copy it, and see that it is what Hadoop has summed. A description is written with relative paths."""
        sums = source.sums_beside(path)
        with opened(source.root, path) as file:
            saved = copy_file(file, content / path, progress.add, self.pace)
        if sums is not None and whole_crc(sums[1], sums[0], saved.size) != saved.crc:
            raise Unready(path, "its content does not match the checksums beside it")
        return _relative(path, content / path) if is_description(path) else saved

    def _described(
        self, seen: Seen, record: IdentityRecord, epoch: int, identifier: str, files: Mapping[str, SavedFile]
    ) -> Savepoint:
        barrier = seen.view.logs.offsets[epoch].text or ""
        came = record.restored
        marker = seen.context.settled.legible(epoch) if seen.context is not None else None
        return Savepoint(
            id=identifier,
            job=record.job,
            generation=record.generation,
            known=record.known,
            epoch=epoch,
            fingerprint=fingerprint_of(barrier.encode()),
            taken_at=self.clock.now(),
            onceward=__version__,
            spark=self.spark,
            origin=str(self.root),
            barrier=barrier,
            query=record.query,
            guarantee=record.guarantee_of(epoch + 1),
            parent=None if came is None else Parent(came.generation, came.epoch, came.savepoint),
            ancestors={} if came is None else came.reached(),
            sinks=marker.sinks if marker is not None else {},
            topology=read_topology(self.root),
            files=files,
        )


def settled_epoch(seen: Seen) -> tuple[IdentityRecord, int]:
    """Whose checkpoint it is, and the newest epoch that is decided and published, if a savepoint can be taken of it."""
    record, why = seen.ours.record, seen.ours.problem
    if record is None or seen.context is None:
        raise why or ConfigurationError(
            "onceward has never run on this checkpoint: nobody knows what of it is published",
            hint="`onceward adopt CHECKPOINT --job FILE` takes the checkpoint of a plain Spark query over",
        )
    logs = seen.view.logs
    epoch = min(seen.published, logs.decided)
    if epoch < 0:
        raise ConfigurationError("no epoch is published yet", hint="take a savepoint once the first epoch is through")
    if epoch < min(logs.decided, min(logs.offsets, default=0)):
        raise ConfigurationError(
            f"epochs after {epoch} wait to be published, and Spark has let go of epoch {epoch}",
            hint="start the job: it publishes first what waits; then take the savepoint",
        )
    for one in seen.our_findings:
        if one.finding.severity is Severity.ERROR and (one.epoch is None or one.epoch <= epoch):
            raise Unready(one.finding.about, one.finding.detail)
    return record, epoch


def _refuse_links(root: Path, chosen: list[str]) -> None:
    """No link is followed, nor copied as one: what it leads to may be another checkpoint's."""
    folders = {parent for path in chosen for parent in PurePosixPath(path).parents}
    for path in sorted(map(str, folders)):
        if (root / path).is_symlink() and path != ".":
            raise ConfigurationError(
                f"{root / path} is a link, and a savepoint follows none",
                hint="stop the job and put the folder itself there, or mount it there (mount --bind)",
            )


def _relative(path: str, copy: Path) -> SavedFile:
    try:
        data = made_relative(path, copy.read_bytes())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unready(path, f"it is torn or garbled: {error}") from error
    copy.write_bytes(data)
    with opened(copy.parent, copy.name) as file:
        return sum_file(file, lambda count: None)


def _check_closed(made: Unfinished, epoch: int, chosen: list[str]) -> None:
    """The copy by itself: does it name no file that it has not? A snapshot may have been written anew meanwhile."""
    files = Files(made.path / CONTENT)
    found = files_at(files, read_logs(files, quick=True), epoch)
    if set(found) != set(chosen):
        raise Unready(sorted(set(found) ^ set(chosen))[0], "it was written anew while it was copied")


def _lost(root: Path, found: Unready) -> OncewardError:
    """A snapshot that Spark passes over is not left out here by guess: a person moves it, and knows of the damage."""
    fixes = (one.fix or "" for one in look(root).findings if one.about == found.path)
    away = next((fix[fix.index(MOVE) :] for fix in fixes if MOVE in fix), None)
    return DamagedFile(
        f"a savepoint cannot be taken of {root}: {found.path}: {found.why}",
        hint=f"`onceward checkpoints verify {root}` says what is wrong with the checkpoint, and from which epoch it is "
        "whole"
        if away is None
        else f"{away}; then take it again",
    )
