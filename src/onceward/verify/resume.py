"""From which epoch Spark can go on: what a start reads of its logs, its sources' lists and its state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from onceward.contracts import Finding, Log, Severity
from onceward.verify.files import Files
from onceward.verify.lists import SourceList, end_of, list_findings, source_lists
from onceward.verify.logs import Entry, Logs
from onceward.verify.state import Wanted, state_findings

_FIX = "restore the file from a backup; else take the checkpoint back to an epoch that is whole"


@dataclass(frozen=True, slots=True)
class Point:
    """Where Spark goes on: after `decided`; `planned` is that epoch, or the next one, which then runs again."""

    decided: int
    planned: int

    @property
    def version(self) -> int:
        """Of the state that it loads."""
        return self.decided + 1


@dataclass(frozen=True, slots=True)
class View:
    """Spark's part of a checkpoint in one look; `quick` leaves the state out. A start removes lists in `dropped`."""

    files: Files
    logs: Logs
    quick: bool
    dropped: frozenset[str] = frozenset()


def newest_point(logs: Logs) -> Point | None:
    """Where a start goes on now; None where nothing was ever planned."""
    if logs.decided < 0 and logs.planned < 0:
        return None
    return Point(logs.decided, max(logs.planned, logs.decided))


def point_after(logs: Logs, epoch: int) -> Point:
    """Where a start would go on if `epoch` were the newest decided one. The next barrier stays, if it can be read."""
    following = logs.offsets.get(epoch + 1)
    return Point(epoch, epoch + 1 if following is not None and following.problem is None else epoch)


def needed_entries(logs: Logs, point: Point) -> frozenset[str]:
    """The log entries that such a start reads."""
    barriers = {f"offsets/{n}" for n in (point.planned - 1, point.planned) if n >= 0}
    newest = max((n for n in logs.commits if n <= point.decided), default=-1)
    return frozenset(barriers | ({f"commits/{newest}"} if newest >= 0 else set()))


def resume_findings(view: View, point: Point, *, goes_back: bool = False) -> Iterator[Finding]:
    """What keeps Spark from going on there. `goes_back`: what comes after it is taken out first."""
    yield from _log_findings(view.logs, point, goes_back=goes_back)
    barrier = view.logs.offsets.get(point.planned)
    positions = barrier.positions if barrier is not None else []
    for one in source_lists(view.files, without=view.dropped):
        end = end_of(positions, one.folder)
        kept = without_later(view.files, one, end) if goes_back and end is not None else one
        yield from list_findings(view.files, kept, end)
    if view.quick:
        return
    settings = view.logs.offsets.get(point.decided) or barrier
    wanted = Wanted.at(point.version, settings, view.logs.commits.get(point.decided))
    yield from state_findings(view.files, wanted)


def without_later(files: Files, one: SourceList, end: int) -> SourceList:
    """Without the lists above `end` from the first one on that is missing or damaged: their source makes them anew."""
    there = one.plain | one.compact
    later = range(end + 1, one.newest + 1)
    bad = next((n for n in later if n not in there or not files.check(one.name(n)).is_sound), None)
    if bad is None:
        return one
    return replace(
        one,
        plain=frozenset(n for n in one.plain if n < bad),
        compact=frozenset(n for n in one.compact if n < bad),
    )


def _log_findings(logs: Logs, point: Point, *, goes_back: bool) -> Iterator[Finding]:
    for epoch in (point.planned - 1, point.planned):
        if epoch >= 0:
            yield from _entry_findings(Log.OFFSETS, epoch, logs.offsets.get(epoch))
    newest = max((n for n in logs.commits if n <= point.decided), default=-1)
    if newest == point.decided:
        if newest >= 0:
            yield from _entry_findings(Log.COMMITS, newest, logs.commits[newest])
        return
    name = f"commits/{point.decided}"
    if goes_back or point.planned == point.decided or _has_ids(logs, newest):
        yield Finding(name, Severity.ERROR, "it is missing, and Spark needs it to go on from there", _FIX)
        return
    if newest >= 0:
        yield from _entry_findings(Log.COMMITS, newest, logs.commits[newest])
    what = f"it is missing; as offsets/{point.planned} is there, the epoch still counts as decided"
    yield Finding(name, Severity.WARNING, what, "nothing; Spark goes on")


def _has_ids(logs: Logs, epoch: int) -> bool:
    """Under state format 2 a commit says which files are the state: it cannot be done without."""
    return epoch in logs.commits and bool(logs.commits[epoch].metadata.get("stateUniqueIds"))


def _entry_findings(log: Log, epoch: int, entry: Entry | None) -> Iterator[Finding]:
    name = f"{log.value}/{epoch}"
    if entry is None:
        yield Finding(name, Severity.ERROR, "it is missing, and Spark does not start without it", _FIX)
    elif entry.problem is not None:
        yield Finding(name, Severity.ERROR, entry.problem, _FIX)
