"""What this sink's promises rest on in the server: taken at the start, and looked at again in every transaction.

The transaction first locks the table as its own writes will. No one can then change its columns, indexes, triggers or
rules until it ends, so that what is found stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from onceward.connections.postgres import PostgresError, Session
from onceward.contracts import refuse_change
from onceward.errors import TargetChanged, TargetRefused
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.postgres.equality import keys_of
from onceward.sinks.postgres.errors import classify, translated
from onceward.sinks.postgres.hazards import acting_on, refuse_bad_receipts, refuse_hazards
from onceward.sinks.postgres.options import Options
from onceward.sinks.postgres.receipts import Receipts
from onceward.sinks.postgres.table import Column, Table, describe

_NONE = "none"


class TargetFacts:
    """One sink's. It is pickled with the sink, so that executors compare with what the driver found."""

    def __init__(self, options: Options, receipts: Receipts) -> None:
        self._options, self._receipts = options, receipts
        self._filled: frozenset[str] | None = None
        self.facts: Mapping[str, str] | None = None

    def take(self, session: Session, filled: Iterable[str]) -> None:
        """At a start, when the table has been checked and fits: from here on it stays as it is. The stream fills these
        of its columns."""
        self._filled = frozenset(filled)
        table, receipts = self._describe(session.run)
        if table is None:
            raise TargetRefused(f"the table {self._options.table} is not found", hint="check the search path")
        refuse_hazards(table, self._options)
        for one in receipts:
            refuse_bad_receipts(one)
        self.facts = facts_of(table, receipts, self._options, self._filled)

    def confirm(self, session: Session, *, epoch: int) -> Table:
        """Inside a transaction, before it writes rows: the table, which stays as it is until the transaction ends."""
        try:
            session.run(f"LOCK TABLE ONLY {self._options.table} IN ROW EXCLUSIVE MODE")
        except PostgresError as error:
            if classify(error) is not ErrorClass.TARGET:
                raise
            raise translated(error, str(self._options.table), epoch=epoch) from None
        table, receipts = self._describe(session.run_prepared)
        if table is None:
            raise TargetChanged(
                f"there is no table {self._options.table} any more",
                epoch=epoch,
                hint="make it again, then start again; the epoch stays staged",
            )
        now = facts_of(table, receipts, self._options, self._filled)
        if self.facts is None:
            refuse_hazards(table, self._options)
            for one in receipts:
                refuse_bad_receipts(one)
            self.facts = now
        refuse_change(self.facts, now, epoch=epoch)
        return table

    def _describe(self, run: Callable[..., list[tuple[Any, ...]]]) -> tuple[Table | None, list[Table]]:
        """The table, and those for the receipts as far as they exist. One statement, which waits for no lock."""
        names = (str(self._options.table), self._receipts.receipts_table, self._receipts.watermarks_table)
        table, *receipts = describe(run, *names)
        return table, [found for found in receipts if found is not None]


def facts_of(
    table: Table, receipts: Iterable[Table], options: Options, filled: frozenset[str] | None
) -> Mapping[str, str]:
    """Only what the promise rests on. Of the columns those that the stream has `filled`; all where nobody knows."""
    facts = {
        "table": f"{table}, {_persistence(table)}",
        "row security": "active" if table.has_row_security else _NONE,
        "foreign partitions": _listed(table.foreign),
        "unique indexes": _listed(f"{one.table} {one.definition}" for one in table.indexes),
        "triggers": _listed(f"{one.definition} (body {one.body})" for one in table.triggers),
        "rules": _listed(table.rules),
    }
    if options.mode != "append":
        facts["tables that inherit"] = _listed(table.children)
    if options.mode == "replace":
        facts["foreign keys of other tables"] = _listed(table.referring)
    if options.keys:
        facts["equality of keys"] = _equality(table, options)
    for column in table.columns.values():
        if filled is None or column.name in filled:
            facts[f"column {column.name}"] = _type_of(column)
    others = [column for column in table.columns.values() if filled is not None and column.name not in filled]
    if required := [column.name for column in others if column.is_required]:
        facts["columns that need a value"] = _listed(required)
    return facts | {one.name: ", ".join([str(one), _persistence(one), *acting_on(one)]) for one in receipts}


def _equality(table: Table, options: Options) -> str:
    try:
        keys = keys_of(table, options)
    except TargetRefused as refused:
        return refused.message
    return ", ".join(
        " ".join(filter(None, (part.column, part.operator, part.compared_as, part.collation))) for part in keys.parts
    )


def _persistence(table: Table) -> str:
    return f"with {', '.join(table.unlogged)} unlogged" if table.unlogged else "logged"


def _type_of(column: Column) -> str:
    kind = f"{column.printed} collated {column.collation}" if column.collation else column.printed
    return f"{kind}, computed" if column.is_computed else kind


def _listed(facts: Iterable[str]) -> str:
    return "; ".join(sorted(facts)) or _NONE
