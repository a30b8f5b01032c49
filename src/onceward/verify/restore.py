"""Taking a stopped checkpoint back to an earlier epoch that Spark still holds: what came after it is moved aside.

What is moved is written down first, then moved, then that it is done. The state goes first, from the top: from then on
Spark does not start until all of it is moved, so that no start can go on from a mixture. Then the decisions and the
barriers, from the top, in the order in which `rewind` removes them: in between an epoch counts as decided, or runs
again with the same barrier. The checksum beside a file goes before the file, which is then merely not vouched for.

State above the epoch must go, not only the logs: Spark would compute those versions again, and a snapshot that the
former computation left there would be taken for theirs at a later start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from onceward.contracts import Log, Receipt, Severity
from onceward.errors import CheckpointRefused, ConfigurationError, DamagedFile
from onceward.storage import LocalStorage, make_folders, sync_file_system, sync_folder
from onceward.verify.lists import end_of, source_lists
from onceward.verify.look import Seen, candidate_findings, newest_candidate, repeated_after, see
from onceward.verify.removed import PREFIX, Restoration, unfinished, write_done, write_down
from onceward.verify.report import Candidate
from onceward.verify.resume import point_after, without_later
from onceward.verify.stores import version_in

_LOGS: Final = (Log.COMMITS.value, Log.OFFSETS.value)


def plan_restore(
    root: Path, epoch: int, *, now: datetime, receipts: tuple[Receipt, ...] = (), accepts_rollback: bool = False
) -> Restoration:
    """What a restore to this epoch moves, or one that was begun and not finished. Changes nothing; refuses what is not
    whole, and what repeats published rows unless that is accepted."""
    if (begun := unfinished(LocalStorage(root / "onceward"))) is not None:
        if begun.epoch != epoch:
            raise ConfigurationError(
                f"a restore to epoch {begun.epoch} was begun and not finished",
                hint=f"give it again with --epoch {begun.epoch}: that finishes it",
            )
        return begun
    seen = see(root)
    _refuse_newer(seen, epoch)
    _refuse_damaged(seen, epoch)
    repeated = repeated_after(seen, epoch, receipts)
    if repeated is not None and not accepts_rollback:
        first, last = repeated
        raise CheckpointRefused(
            f"{Candidate(epoch, repeated).consequence}",
            epoch=first,
            hint=f"restore a backup of the checkpoint; go back no further than to epoch {last - 1}, if that is whole; "
            "or, if rows may come twice, add --accept rollback here, and start the job with --accept rollback",
        )
    folder = f"{PREFIX}{now.strftime('%Y%m%dT%H%M%S%fZ')}"
    return Restoration(epoch, folder, tuple(_moves(seen, root, epoch)), repeated)


def restore(root: Path, plan: Restoration, *, by: str, at: datetime, because: str) -> None:
    """Do it; what has been moved already stays where it is. Given again after a crash, it finishes."""
    storage = LocalStorage(root / "onceward")
    write_down(storage, plan, by=by, at=at, because=because)
    aside = root / "onceward" / plan.folder
    logs_begin = next((n for n, path in enumerate(plan.moves) if path.split("/")[0] in _LOGS), len(plan.moves))
    for number, path in enumerate(plan.moves):
        if number == logs_begin:
            sync_file_system(root)
        _move(root / path, aside / path)
        if number >= logs_begin:
            sync_folder((root / path).parent)
    sync_file_system(root)
    write_done(storage, plan)


def _moves(seen: Seen, root: Path, epoch: int) -> Iterator[str]:
    """State from the top, decisions from the top, barriers from the top, then lists that are damaged."""
    point = point_after(seen.view.logs, epoch)
    for path in later_state(root, point.version):
        yield path.relative_to(root).as_posix()
    for log, newest in ((Log.COMMITS, point.decided), (Log.OFFSETS, point.planned)):
        for number in sorted((n for n in seen.view.logs.numbers[log] if n > newest), reverse=True):
            yield from _with_checksum(root, f"{log.value}/{number}")
    positions = seen.view.logs.offsets[point.planned].positions
    for one in source_lists(seen.view.files):
        if (end := end_of(positions, one.folder)) is not None:
            kept = without_later(seen.view.files, one, end)
            gone = (one.plain | one.compact) - (kept.plain | kept.compact)
            for number in sorted(gone, reverse=True):
                yield from _with_checksum(root, one.name(number))


def later_state(root: Path, version: int) -> list[Path]:
    """The files of the state above this version, from the top, the checksums of each before it."""
    found = [(v, path) for path in _files(root, "state") if (v := version_in(path.name)) and v > version]
    ordered = sorted(found, key=lambda one: (-one[0], one[1].parent, _crc_first(one[1].name)))
    return [path for _, path in ordered]


def _files(root: Path, folder: str) -> Iterator[Path]:
    for parent, _, names in os.walk(root / folder):
        yield from (Path(parent, name) for name in names)


def _crc_first(name: str) -> tuple[str, int]:
    """Beside `10.zip`: `.10.zip.crc.crc`, then `.10.zip.crc` and `10.zip.crc`, then the file itself."""
    plain = name.removeprefix(".").removesuffix(".crc").removesuffix(".crc")
    return plain, -len(name)


def _with_checksum(root: Path, path: str) -> Iterator[str]:
    folder, _, name = path.rpartition("/")
    for one in (f"{folder}/.{name}.crc", path):
        if (root / one).exists():
            yield one


def _move(path: Path, aside: Path) -> None:
    if not path.exists() and aside.exists():
        return
    if aside.exists():
        raise ConfigurationError(
            f"{path} is there again: the job was started since the restore was begun",
            hint=f"stop the job; what was moved is in {aside.parent}",
        )
    make_folders(aside.parent)
    os.rename(path, aside)


def _refuse_newer(seen: Seen, epoch: int) -> None:
    if seen.context is None:
        why = seen.ours.problem
        raise ConfigurationError(
            why.message if why is not None else "this is not a checkpoint of an onceward job that can be read",
            hint=why.hint if why is not None else "`onceward checkpoints verify` says what is wrong with it",
        )
    decided = seen.view.logs.decided
    if not 0 <= epoch < decided:
        raise ConfigurationError(
            f"epoch {epoch} is not before the newest decided one, {decided}", hint="give an earlier epoch"
        )


def _refuse_damaged(seen: Seen, epoch: int) -> None:
    wrong = [one for one in candidate_findings(seen, epoch) if one.severity is Severity.ERROR]
    if wrong:
        better = newest_candidate(seen, below=seen.view.logs.decided)
        hint = f"the newest epoch that it can go back to is {better.epoch}" if better else "no earlier epoch is whole"
        raise DamagedFile(
            f"epoch {epoch} is not whole either: {wrong[0].about}: {wrong[0].detail}", epoch=epoch, hint=hint
        )
