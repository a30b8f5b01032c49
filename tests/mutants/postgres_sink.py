"""The PostgreSQL sink, and the SQLite sink where it has the same rules. Those of PostgreSQL need its server."""

from __future__ import annotations

from mutants.mutant import Mutant

EQUALITY = ("tests/targets/postgres/test_equality.py",)
FACTS = ("tests/targets/postgres/test_facts.py",)
HAZARDS = ("tests/targets/postgres/test_hazards.py",)
FAULTS = ("tests/targets/postgres/test_any_fault.py",)
SQLITE = ("tests/unit/sinks/test_sqlite.py",)

RULES = (
    Mutant(
        name="postgres-keys-by-the-operator-of-the-index",
        rule="Keys are compared by the operator of the unique index, wherever the search path leads.",
        file="sinks/postgres/equality.py",
        old="{part.operator} {_expression('s.', part)}",
        new="= {_expression('s.', part)}",
        tests=EQUALITY,
    ),
    Mutant(
        name="postgres-keys-by-the-collation-of-the-index",
        rule="Keys are compared by the collation of the unique index, not by the column's.",
        file="sinks/postgres/equality.py",
        old="if part.collation is not None else compared",
        new='if part.collation == "" else compared',
        tests=EQUALITY,
    ),
    Mutant(
        name="postgres-facts-are-compared",
        rule="A table that changed in mid-run stops the next epoch.",
        file="sinks/postgres/facts.py",
        old="        refuse_change(self.facts, now, epoch=epoch)\n",
        new="",
        tests=FACTS,
    ),
    Mutant(
        name="postgres-triggers-that-come-between",
        rule="A trigger that may change a row or leave it out is refused unless it is named.",
        file="sinks/postgres/hazards.py",
        old="    if unnamed:\n",
        new="    if unnamed and target.triggers:\n",
        tests=HAZARDS,
    ),
    Mutant(
        name="postgres-deletes-are-looked-at",
        rule="What a trigger keeps from being deleted fails the replacement.",
        file="sinks/postgres/write_ahead.py",
        old="                refuse_kept(session, str(table), table)\n",
        new="                pass\n",
        tests=HAZARDS,
    ),
    Mutant(
        name="postgres-errors-that-nobody-knows-are-bisected",
        rule="A row with an error that is in no table is named all the same.",
        file="sinks/postgres/rejected.py",
        old="if meaning is ErrorClass.RETRY:",
        new="if meaning is not ErrorClass.ROW:",
        tests=FAULTS,
    ),
    Mutant(
        name="postgres-deferred-constraints-are-bisected",
        rule="A row that only the commit refuses is named.",
        file="sinks/postgres/rejected.py",
        old='    session.run("SET CONSTRAINTS ALL IMMEDIATE")\n',
        new="",
        tests=FAULTS,
    ),
    Mutant(
        name="sqlite-conflict-clauses-are-overruled",
        rule="A table that leaves out rows which violate a constraint gets them as an error.",
        file="sinks/sqlite/schema.py",
        old="INSERT OR ABORT INTO",
        new="INSERT INTO",
        tests=SQLITE,
    ),
    Mutant(
        name="sqlite-rows-that-a-trigger-leaves-out",
        rule="Every row that was sent has been written, or is named.",
        file="sinks/sqlite/sink.py",
        old="if written < batch.num_rows and",
        new="if written > batch.num_rows and",
        tests=SQLITE,
    ),
    Mutant(
        name="sqlite-facts-are-compared",
        rule="A table of SQLite that changed in mid-run stops the next epoch.",
        file="sinks/sqlite/sink.py",
        old="        refuse_change(self._facts, now, epoch=epoch)\n",
        new="",
        tests=SQLITE,
    ),
)
