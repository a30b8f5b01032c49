"""Page views of a few apps: the input, what must come out of it, and what did."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

WATCHED = "ONCEWARD_DEMO_WATCHED"
"""In the environment of a driver that the dashboard is to ask."""
APPS = ("news", "mail", "maps", "music", "shop")
Update = tuple[str, int]
"""An app and its page views so far: one row of the output."""


@dataclass(frozen=True, slots=True)
class Audit:
    """A target compared with what must be in it, row by row."""

    target: str
    expected: int
    found: int
    lost: int
    duplicated: int

    @property
    def clean(self) -> bool:
        """Nothing missing, nothing too much."""
        return self.lost == 0 and self.duplicated == 0


def write_input(folder: Path, *, files: int, views_per_file: int, seed: int) -> None:
    """JSON lines, one epoch a file; modification times fix the order in which Spark reads them."""
    folder.mkdir(parents=True)
    chance = random.Random(seed)
    for number in range(files):
        path = folder / f"{number:04}.json"
        apps = chance.choices(APPS, weights=(5, 4, 3, 2, 1), k=views_per_file)
        path.write_text("".join(json.dumps({"app": app, "page": f"/{number}"}) + "\n" for app in apps))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def expected_updates(folder: Path, checkpoint: Path) -> Counter[Update]:
    """Every update that the counts go through: after each epoch, the new count of each app that is in it.

    Where an epoch ends is Spark's choice: a kill between two of its own logs makes it read two files in one epoch.
    """
    files = sorted(folder.glob("*.json"))
    counts: Counter[str] = Counter()
    updates: Counter[Update] = Counter()
    start = 0
    for end in _epoch_ends(checkpoint):
        lines = (line for path in files[start:end] for line in path.read_text().splitlines())
        seen = Counter(json.loads(line)["app"] for line in lines)
        counts += seen
        updates.update((app, counts[app]) for app in seen)
        start = end
    if start != len(files):
        raise ValueError(f"the input has {len(files)} files, but the epochs end after {start}")
    return updates


def _epoch_ends(checkpoint: Path) -> list[int]:
    """How many files each epoch and those before it have read, from Spark's offset log."""
    entries = sorted(
        (path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    return [json.loads(path.read_text().splitlines()[-1])["logOffset"] + 1 for path in entries]


def newest(updates: Counter[Update]) -> Counter[Update]:
    """The last count of each app."""
    last: dict[str, int] = {}
    for app, views in updates:
        last[app] = max(views, last.get(app, 0))
    return Counter(last.items())


def compare(target: str, expected: Counter[Update], found: Counter[Update]) -> Audit:
    """Rows that are missing, and rows that are there more often than they should be."""
    return Audit(
        target=target,
        expected=expected.total(),
        found=found.total(),
        lost=(expected - found).total(),
        duplicated=(found - expected).total(),
    )


def read_table(database: Path, table: str) -> Counter[Update]:
    """All rows of a SQLite table of updates."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return Counter(connection.execute(f"SELECT app, views FROM {table}").fetchall())
    finally:
        connection.close()


def read_parquet(folder: Path) -> Counter[Update]:
    """All rows of all Parquet files that a plain listing of the directory shows."""
    found: Counter[Update] = Counter()
    for path in folder.glob("*.parquet"):
        table = pq.ParquetFile(path).read(columns=["app", "views"])
        found.update(zip(table["app"].to_pylist(), table["views"].to_pylist(), strict=True))
    return found
