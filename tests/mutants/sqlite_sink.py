"""The SQLite sink: what a table of a user's may do with rows behind our back."""

from __future__ import annotations

from mutants.mutant import Mutant

SQLITE = ("tests/unit/sinks/test_sqlite_rows.py",)

RULES = (
    Mutant(
        name="sqlite-conflict-clauses-are-overruled",
        rule="A table that leaves out rows which violate a constraint gets them as an error.",
        file="sinks/sqlite/rows.py",
        old="INSERT OR ABORT INTO",
        new="INSERT INTO",
        tests=SQLITE,
    ),
    Mutant(
        name="sqlite-rows-that-a-trigger-leaves-out",
        rule="Every row that was sent has been written, or is named.",
        file="sinks/sqlite/rows.py",
        old="if written < batch.num_rows and",
        new="if written > batch.num_rows and",
        tests=SQLITE,
    ),
    Mutant(
        name="sqlite-facts-are-compared",
        rule="A table of SQLite that changed in mid-run stops the next epoch.",
        file="sinks/sqlite/facts.py",
        old="        refuse_change(self.facts, now, epoch=epoch)\n",
        new="",
        tests=SQLITE,
    ),
)
