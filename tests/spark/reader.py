"""A reader that looks at both targets all the while, as a user's dashboard would, and notes what it must never see."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

from .workspace import ROWS, SparkWorkspace, epoch_of, read_files, visible

_QUERY = "SELECT file, count(*), count(DISTINCT id) FROM t GROUP BY file"


class Reader:
    """Polls in a thread of the test's process. `looks` counts, `sights` says what was wrong, each once."""

    def __init__(self, workspace: SparkWorkspace) -> None:
        self._workspace = workspace
        self._ids: Counter[int] = Counter()
        self._read: set[Path] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="reader", daemon=True)
        self.sights: set[str] = set()
        self.looks = 0
        self.partly_visible = 0

    def __enter__(self) -> Reader:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look once more, and end."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._over.wait(0.05):
                self._look()
            self._look()
        except BaseException as error:
            self.sights.add(f"the reader itself failed: {error!r}")

    def _look(self) -> None:
        self._look_at_table()
        self._look_at_files()
        self.looks += 1

    def _look_at_table(self) -> None:
        found = self._table()
        # The rows first, then the decision: what was visible must have been decided before.
        decided = self._workspace.logs.decided()
        epochs = self._workspace.epochs_of(file for file, _, _ in found)
        for epoch, (file, rows, ids) in zip(epochs, found, strict=True):
            if rows != ids:
                self.sights.add(f"the table has file {file} with {rows} rows and {ids} ids")
            if ids != ROWS:
                self.sights.add(f"the table has {ids} of the {ROWS} rows of file {file}")
            if epoch > decided:
                self.sights.add(f"the table has epoch {epoch}, and only {decided} is decided")

    def _table(self) -> list[tuple[int, int, int]]:
        if not self._workspace.database.exists():
            return []
        with closing(sqlite3.connect(f"file:{self._workspace.database}?mode=rw", uri=True, timeout=60)) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 't'").fetchone():
                return []
            return database.execute(_QUERY).fetchall()

    def _look_at_files(self) -> None:
        listed = visible(self._workspace.files)
        if gone := self._read - set(listed):
            self.sights.add(f"visible files went away: {sorted(path.name for path in gone)}")
        new = [path for path in listed if path not in self._read]
        # What is listed is finished: it can be read whole at once, and never changes.
        rows = {path: read_files([path]) for path in new}
        decided = self._workspace.logs.decided()
        for path in new:
            self._read.add(path)
            self._ids.update(row["id"] for row in rows[path])
            if set(self._workspace.epochs_of({row["file"] for row in rows[path]})) != {epoch_of(path)}:
                self.sights.add(f"{path.name} holds rows of another epoch")
            if epoch_of(path) > decided:
                self.sights.add(f"{path.name} is visible, and only {decided} is decided")
        twice = [identifier for identifier, count in self._ids.items() if count > 1]
        if twice:
            self.sights.add(f"ids {twice[:5]} stand in two files")
        epochs = Counter(epoch_of(path) for path in listed)
        self.partly_visible += any(count == 1 for count in epochs.values())
