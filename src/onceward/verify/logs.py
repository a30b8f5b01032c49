"""Spark's two logs: each entry as it stands, and as it will stand once the next start has put right what it can.

Spark goes on from the newest entry of `offsets/`, and needs the one before it. If `commits/` has reached it, the next
epoch is planned; else that epoch runs again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from onceward.contracts import Finding, Log, Severity
from onceward.recovery.repair import Drop, PutBack, Repair, describe_repair
from onceward.verify.files import Files

_VERSION = re.compile(r"v([0-9]{1,4})")
_KNOWN: Final = {Log.OFFSETS: 2, Log.COMMITS: 2}
"""The highest version that Spark 4.3 writes."""
RECENT: Final = 100
"""So many entries a quick look reads, as many as Spark keeps unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. `text` is None where it is empty or torn; `problem` is why Spark would not read it."""

    text: str | None
    problem: str | None = None
    remark: str | None = None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its second line."""
        document = json.loads(self.text.split("\n")[1]) if self.text else {}
        return document if isinstance(document, dict) else {}

    @property
    def positions(self) -> list[str]:
        """Where the epoch ends in each source."""
        return self.text.split("\n")[2:] if self.text else []


@dataclass(frozen=True, slots=True)
class Logs:
    """Every entry by epoch. `numbers` has those too that a quick look did not read."""

    offsets: Mapping[int, Entry]
    commits: Mapping[int, Entry]
    numbers: Mapping[Log, tuple[int, ...]]

    def entries(self, log: Log) -> Mapping[int, Entry]:
        """Of one of the two."""
        return self.offsets if log is Log.OFFSETS else self.commits

    @property
    def planned(self) -> int:
        """The newest barrier, -1 without one."""
        return max(self.offsets, default=-1)

    @property
    def committed(self) -> int:
        """The newest entry of `commits/`, -1 without one."""
        return max(self.commits, default=-1)

    @property
    def decided(self) -> int:
        """As onceward counts: an epoch that Spark has gone past is decided."""
        return max(self.committed, self.planned - 1)


def read_logs(files: Files, *, quick: bool) -> Logs:
    """Commits first: a job that goes on meanwhile can only make the barriers look newer than the decisions."""
    numbers = {log: _numbers(files, log) for log in (Log.COMMITS, Log.OFFSETS)}
    read: dict[Log, dict[int, Entry]] = {}
    for log, all_numbers in numbers.items():
        wanted = all_numbers[-RECENT:] if quick else all_numbers
        read[log] = {n: entry for n in wanted if (entry := _entry(files, log, n)) is not None}
    return Logs(read[Log.OFFSETS], read[Log.COMMITS], numbers)


def repaired(logs: Logs, repairs: list[Repair]) -> Logs:
    """As the next start leaves them."""
    entries = {log: dict(logs.entries(log)) for log in Log}
    for one in repairs:
        match one:
            case PutBack(log, epoch, text):
                entries[log][epoch] = Entry(text, remark=describe_repair(one))
            case Drop(log, epoch, _):
                entries[log].pop(epoch, None)
            case _:
                pass
    return replace(logs, offsets=entries[Log.OFFSETS], commits=entries[Log.COMMITS])


def unneeded_findings(logs: Logs, needed: frozenset[str]) -> Iterator[Finding]:
    """What is wrong in entries that no start reads any more: only a restore to an older epoch would need them."""
    for log in Log:
        for epoch, entry in sorted(logs.entries(log).items()):
            name = f"{log.value}/{epoch}"
            if entry.problem and name not in needed:
                fix = "nothing now; the job cannot be taken back to that epoch"
                yield Finding(name, Severity.WARNING, f"{entry.problem}; no start needs it any more", fix)
            if entry.remark:
                yield Finding(name, Severity.WARNING, entry.remark, "nothing; the next start does it")
        yield from _gaps(log, logs.numbers[log])


def _gaps(log: Log, numbers: tuple[int, ...]) -> Iterator[Finding]:
    for before, after in pairwise(numbers):
        if after != before + 1:
            what = f"entries {before + 1} to {after - 1} are missing between {before} and {after}"
            yield Finding(
                f"{log.value}/", Severity.WARNING, what, "nothing, unless a line above says that one is needed"
            )


def _numbers(files: Files, log: Log) -> tuple[int, ...]:
    return tuple(sorted(int(name) for name in files.names(log.value) if name.isdigit()))


def _entry(files: Files, log: Log, epoch: int) -> Entry | None:
    """None where it vanished since it was listed."""
    path = f"{log.value}/{epoch}"
    checked, data = files.check(path), files.read(path)
    if data is None or not checked.exists:
        return None
    text, torn = _text(data)
    if text is None:
        return Entry(None, torn)
    version = int(_VERSION.fullmatch(text.split("\n")[0])[1])  # type: ignore[index]  # `_text` has matched it.
    if checked.problem is None and version > _KNOWN[log] and not checked.is_vouched_for:
        return Entry(text, f"its version is {version}, which Spark does not write there")
    remark = f"its version {version} is newer than this release knows" if version > _KNOWN[log] else None
    return Entry(text, checked.problem, remark)


def _text(data: bytes) -> tuple[str | None, str | None]:
    """The text, or why it is none: as a start judges it, and Spark."""
    if not data.strip(b"\0"):
        return None, "it is empty" if not data else "it is nothing but zeros"
    try:
        text = data.decode()
        version, metadata = text.split("\n")[:2]
        json.loads(metadata)
    except ValueError:
        return None, "it is torn or garbled: its first two lines are not a version and a JSON document"
    if not _VERSION.fullmatch(version) or "\0" in text:
        return None, "it is torn or garbled: it does not begin with a version, or has zeros in it"
    return text, None
