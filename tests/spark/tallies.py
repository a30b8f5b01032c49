"""The source and the targets of `tallies_job`, and what is right in them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onceward import Job

from .processes import start
from .tallies_job import tallying
from .workspace import SparkWorkspace, epoch_of, read_files, visible

KEYS, NEW, AGAIN = 5, 20, 10
JOB = Path(__file__).with_name("tallies_job.py")

Tally = tuple[int, int, int]
"""A key, how many ids it has so far, and their sum."""


@dataclass(frozen=True)
class Tallies:
    """One job over the source in `work`: see `tallying`. Another one of the same source is made with `replace`."""

    work: Path
    at: str = "checkpoint"
    out: str = "out"
    who: str = "first"
    name: str = "tallies"
    trigger: str | None = "available-now"
    kafka: str | None = None
    postgres: str | None = None
    dies_after: int | None = None

    @property
    def checkpoint(self) -> Path:
        return self.work / self.at

    def add_files(self, count: int) -> None:
        """Each is one epoch, because the source takes one at a time, the oldest first."""
        source = self.work / "in"
        source.mkdir(exist_ok=True)
        present = self._sources()
        for number in range(present, present + count):
            ids = range(max(0, number * NEW - AGAIN), (number + 1) * NEW)
            hidden = source / f".{number:05}"
            hidden.write_text("\n".join(json.dumps({"id": one, "k": one % KEYS}) for one in ids))
            os.utime(hidden, (1_600_000_000 + number, 1_600_000_000 + number))
            hidden.rename(source / f"{number:05}.json")

    def _sources(self) -> int:
        return len(list((self.work / "in").glob("*.json")))

    def last(self) -> set[Tally]:
        """What every key ends with when all of the source is read."""
        ids = range(self._sources() * NEW)
        return {(key, len(ids[key::KEYS]), sum(ids[key::KEYS])) for key in range(KEYS)}

    def job(self) -> Job:
        """For the tests' own Spark."""
        return tallying(**self._options())

    def start(self, *arguments: str, settings: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """As a process of its own, which programs can ask."""
        command = ["-m", "onceward", "run", str(JOB), "--api", "--spark-log", *arguments]
        config = {key: value for key, value in self._options().items() if key != "work"}
        return start(SparkWorkspace(self.work), *command, settings=settings, **config)

    def environment(self) -> str:
        """By which the job's file knows what it is."""
        return json.dumps(self._options(), default=str)

    def _options(self) -> dict[str, Any]:
        return asdict(self)

    def starts(self) -> int:
        """How many drivers have come so far that recovery is next."""
        path = self.work / f"starts-{self.who}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def in_files(self, *, up_to: int | None = None) -> list[Tally]:
        """What a reader of the folder sees, epoch by epoch; or only of those up to one of them."""
        epochs = {path: epoch_of(path) for path in visible(self.work / self.out)}
        wanted = sorted((epoch, path) for path, epoch in epochs.items() if up_to is None or epoch <= up_to)
        return [tally(row) for _, path in wanted for row in read_files([path]) if row["who"] == self.who]

    def in_table(self, table: str = "tallies") -> list[Tally]:
        """What a reader of the database sees."""
        with closing(sqlite3.connect(self.work / f"{self.out}.db")) as database:
            found = database.execute(f"SELECT k, n, total FROM {table} WHERE who = ? ORDER BY rowid", (self.who,))
            return [(k, n, total) for k, n, total in found]


def tally(row: dict[str, Any]) -> Tally:
    """Of a row."""
    return row["k"], row["n"], row["total"]


def expect_tallies(found: Iterable[Tally], last: set[Tally]) -> None:
    """Each key's tallies only ever grow, none comes twice, and the last ones are these."""
    by_key: dict[int, list[Tally]] = {}
    for one in found:
        by_key.setdefault(one[0], []).append(one)
    for key, tallies in by_key.items():
        counts = [n for _, n, _ in tallies]
        assert counts == sorted(set(counts)), f"key {key} came twice, or went back: {counts}"
    assert {tallies[-1] for tallies in by_key.values()} == last
