"""What Spark's sources keep beside the logs, in `sources/<i>/`: a file source the files of each of its own batches.

It reads, at a start, its newest `.compact` and every list after that. From the numbers of the two newest compact lists
it works out how far apart they are, and looks for the newest one by that: a missing one between them leads it astray.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from onceward.contracts import Finding, Severity
from onceward.verify.files import Files

_NAME = re.compile(r"([0-9]+)(\.compact)?")
_VERSION = re.compile(rb"\0?v[0-9]{1,4}")
_FIX = "restore the file from a backup, or go back to an epoch before it"


@dataclass(frozen=True, slots=True)
class SourceList:
    """The numbered files of one source."""

    folder: str
    plain: frozenset[int]
    compact: frozenset[int]

    @property
    def newest(self) -> int:
        """The highest number, -1 without any."""
        return max(self.plain | self.compact, default=-1)

    def name(self, number: int) -> str:
        """Of the file with this number; the compact one where there are both."""
        return f"{self.folder}/{number}.compact" if number in self.compact else f"{self.folder}/{number}"


def source_lists(files: Files, *, without: frozenset[str] = frozenset()) -> list[SourceList]:
    """Of every source that keeps something; `without` leaves out files that a start or a restore removes."""
    found = []
    for source in sorted(files.names("sources")):
        folder = f"sources/{source}"
        plain: set[int] = set()
        compact: set[int] = set()
        for name in files.names(folder):
            match = _NAME.fullmatch(name)
            if match is not None and f"{folder}/{name}" not in without:
                (compact if match[2] else plain).add(int(match[1]))
        found.append(SourceList(folder, frozenset(plain), frozenset(compact)))
    return found


def end_of(positions: list[str], folder: str) -> int | None:
    """Up to which of its lists an epoch reads a file source; None for every other kind of source."""
    index = folder.rpartition("/")[2]
    try:
        end = json.loads(positions[int(index)])["logOffset"]
        return int(end)
    except (ValueError, LookupError, TypeError):
        return None


def list_findings(files: Files, one: SourceList, end: int | None) -> Iterator[Finding]:
    """What keeps Spark from starting with these lists, when the newest barrier ends at list `end`."""
    if end is None:
        for number in sorted(one.plain | one.compact):
            yield from _content(files, one.name(number), is_list=False)
        return
    base = max(one.compact, default=None)
    first = 0 if base is None else base
    for number in range(first, max(one.newest, end) + 1):
        if number in one.plain | one.compact:
            yield from _content(files, one.name(number), is_list=True)
        else:
            what = "the list is missing: the source's files since its last compact one cannot be told"
            yield Finding(f"{one.folder}/{number}", Severity.ERROR, what, _FIX)
    yield from _astray(one)


def _astray(one: SourceList) -> Iterator[Finding]:
    newest = sorted(one.compact)[-2:]
    if len(newest) == 2 and (newest[1] + 1) % (newest[1] - newest[0]):
        what = f"a compact list between {newest[0]} and {newest[1]} is missing, and Spark would look for another one"
        yield Finding(f"{one.folder}/{newest[1]}.compact", Severity.ERROR, what, _FIX)


def _content(files: Files, path: str, *, is_list: bool) -> Iterator[Finding]:
    checked, data = files.check(path), files.read(path)
    if data is None or not checked.exists:
        yield Finding(path, Severity.ERROR, "it vanished while it was read", _FIX)
    elif checked.problem:
        yield Finding(path, Severity.ERROR, checked.problem, _FIX)
    elif not data.strip(b"\0"):
        yield Finding(path, Severity.ERROR, "it is empty", _FIX)
    elif not checked.is_vouched_for and (why := _garbled(data, is_list=is_list)):
        yield Finding(path, Severity.ERROR, why, _FIX)


def _garbled(data: bytes, *, is_list: bool) -> str | None:
    """Of a file that no checksum vouches for."""
    version, *lines = data.split(b"\n")
    if not _VERSION.fullmatch(version):
        return "it does not begin with a version"
    for line in lines if is_list else ():
        try:
            if not isinstance(json.loads(line)["path"], str):
                return "a line of it names no file"
        except (ValueError, LookupError, TypeError):
            return "a line of it is torn or garbled"
    return None
