"""Spark's logs after a power loss: which entries are torn or gone, and what puts them right.

Spark forces neither log to the disk; onceward does, in this order (`sync_barrier`, `sync_decision`):

- manifest N stands: barrier N, the state after N and decision N-1 are durable;
- anything of epoch N is published: decision N is durable;
- marker N stands: both are, and it carries both texts.

So a torn decision without a marker was never acted on, and a torn barrier without a manifest neither: both may go, and
the epoch runs again. What a manifest or marker carries is put back to the letter. Anything else that is torn was
durable once and is damage of another kind: nothing is guessed, and reading it ends with `DamagedFile`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from onceward.contracts import Log
from onceward.epoch import RunContext
from onceward.errors import DamagedFile


@dataclass(frozen=True, slots=True)
class PutBack:
    """An entry is lost or torn, and its text is known."""

    log: Log
    epoch: int
    text: str


@dataclass(frozen=True, slots=True)
class Drop:
    """An entry is torn (None), or was planned after a decision that is gone. Nothing was built on it."""

    log: Log
    epoch: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class DropList:
    """A source's list of what an epoch reads is torn. The epoch was never staged, so that it may be planned anew."""

    path: str
    epoch: int


Repair = PutBack | Drop | DropList


@dataclass(frozen=True, slots=True)
class Known:
    """What we have of an epoch's entries: the barrier by its manifest or marker, the decision by its marker."""

    barrier: str
    decision: str = ""


Entries = Mapping[int, str | None]


def plan_repairs(
    offsets: Entries,
    commits: Entries,
    known: Mapping[int, Known],
    torn_lists: Mapping[str, bool] = MappingProxyType({}),
) -> list[Repair]:
    """What puts the logs right; nothing where they are whole. None among the entries is a torn one.

    Barriers first: a crash in between leaves a torn decision or list, by which the rest is found again.
    """
    of_commits = [*_commits(commits, known)]
    gone = {one.epoch for one in of_commits if isinstance(one, Drop)}
    decided = max((epoch for epoch in commits if epoch not in gone), default=-1)
    barriers: list[Repair] = [*_unfounded(offsets, gone, decided, known), *_offsets(offsets, decided, known)]
    newest = max(offsets, default=-1)
    # What a barrier refers to was synced with it, if anything was built on it. Else it goes with its list.
    is_built_on = newest in known or newest <= decided
    lists = [path for path, is_new in torn_lists.items() if is_new or not is_built_on]
    dropped = {one.epoch for one in barriers if isinstance(one, Drop)}
    if not is_built_on and newest not in dropped and any(not torn_lists[path] for path in lists):
        barriers.append(Drop(Log.OFFSETS, newest, offsets[newest]))
    return [*barriers, *(DropList(path, newest) for path in lists), *of_commits]


def _commits(commits: Entries, known: Mapping[int, Known]) -> Iterator[Repair]:
    for epoch, text in commits.items():
        if text is not None:
            continue
        if epoch in known and known[epoch].decision:
            yield PutBack(Log.COMMITS, epoch, known[epoch].decision)
        else:
            yield Drop(Log.COMMITS, epoch)


def _offsets(offsets: Entries, decided: int, known: Mapping[int, Known]) -> Iterator[Repair]:
    for epoch, text in offsets.items():
        barrier = known[epoch].barrier if epoch in known else ""
        if barrier and (text is None or (text != barrier and barrier.startswith(text))):
            yield PutBack(Log.OFFSETS, epoch, barrier)
        elif text is None and epoch > decided and epoch == max(offsets):
            yield Drop(Log.OFFSETS, epoch)
    # Spark starts from the newest decided epoch's barrier, and the one before it.
    for epoch in (decided - 1, decided):
        if epoch >= 0 and epoch not in offsets and epoch in known and known[epoch].barrier:
            yield PutBack(Log.OFFSETS, epoch, known[epoch].barrier)


def _unfounded(offsets: Entries, gone: set[int], decided: int, known: Mapping[int, Known]) -> Iterator[Repair]:
    """A barrier that was planned after a decision which is gone: with it, Spark would skip the undecided epoch."""
    for epoch, text in offsets.items():
        if text is not None and epoch - 1 in gone and epoch - 1 > decided and epoch not in known:
            yield Drop(Log.OFFSETS, epoch, text)


def describe_repair(one: Repair) -> str:
    """One line for people."""
    match one:
        case DropList(path, _):
            return f"{path}, a source's list, is torn, as by a power loss, and nothing was built on it: removed"
        case PutBack(log, epoch, _):
            return f"{log.value}/{epoch} is lost or torn, as by a power loss: put back as Spark wrote it"
        case Drop(log, epoch, None):
            return f"{log.value}/{epoch} is torn, as by a power loss, and nothing was built on it: removed"
        case Drop(log, epoch, _):
            return f"{log.value}/{epoch} was planned after a decision that is torn: removed, the epochs run again"


def repairs_needed(context: RunContext) -> list[Repair]:
    """Look at the logs, and at what is known of their newest epochs. Writes nothing."""
    # Commits first: a driver that goes on meanwhile can only make the barriers look newer than the decisions.
    commits, offsets = context.decisions.entries(Log.COMMITS), context.decisions.entries(Log.OFFSETS)
    torn_lists = context.decisions.torn_lists()
    is_whole = None not in (*offsets.values(), *commits.values()) and max(commits, default=-1) in (-1, *offsets)
    return [] if is_whole and not torn_lists else plan_repairs(offsets, commits, known_entries(context), torn_lists)


def known_entries(context: RunContext) -> dict[int, Known]:
    """What markers and manifests have of the logs' texts. Writes nothing."""
    known = {}
    for epoch in context.settled.epochs():
        # What cannot be read is not known; an entry that needs it stays torn, and is refused.
        marker = None
        with contextlib.suppress(DamagedFile):
            marker = context.settled.marker(epoch)
        if marker is not None and marker.manifest is not None:
            known[epoch] = Known(marker.manifest.barrier, marker.decision)
    for epoch, files in context.register.epochs().items():
        manifest = None
        with contextlib.suppress(DamagedFile):
            manifest = context.register.valid_manifest(epoch, files)
        if manifest is not None and epoch not in known:
            known[epoch] = Known(manifest.barrier)
    return known


def repair(context: RunContext, repairs: list[Repair]) -> None:
    """Do it. Each step may be repeated: after a crash in between, the rest is found again."""
    for one in repairs:
        match one:
            case PutBack(log, epoch, text):
                context.decisions.put_back(log, epoch, text)
            case Drop(log, epoch, seen):
                context.decisions.drop(log, epoch, seen)
            case DropList(path, _):
                context.decisions.drop_list(path)
