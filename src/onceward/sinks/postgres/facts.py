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
from onceward.sinks.postgres.hazards import refuse_hazards, refuse_unlogged
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

    def begin(self, session: Session, filled: Iterable[str]) -> None:
        """At a start, when the table has been checked and fits: from here on it stays as it is. The stream fills these
        of its columns."""
        self._filled = frozenset(filled)
        table, receipts = self._describe(session.run)
        if table is None:
            raise TargetRefused(f"the table {self._options.table} is not found", hint="check the search path")
        refuse_hazards(table, self._options)
        for one in receipts:
            refuse_bad_receipts(one)
        self.facts = self._facts_of(table, receipts)

    def held(self, session: Session, epoch: int) -> Table:
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
        now = self._facts_of(table, receipts)
        if self.facts is None:
            refuse_hazards(table, self._options)
            self.facts = now
        refuse_change(self.facts, now, epoch=epoch)
        return table

    def _describe(self, run: Callable[..., list[tuple[Any, ...]]]) -> tuple[Table | None, list[Table]]:
        """The table, and those for the receipts as far as they exist. One statement, which waits for no lock."""
        names = (str(self._options.table), self._receipts.receipts, self._receipts.watermarks)
        table, *receipts = describe(run, *names)
        return table, [found for found in receipts if found is not None]

    def _facts_of(self, table: Table, receipts: Iterable[Table]) -> dict[str, str]:
        facts = {
            "table": f"{table}, {_persistence(table)}",
            "row security": "active" if table.has_row_security else _NONE,
            "foreign partitions": _listed(table.foreign),
            "unique indexes": _listed(f"{one.table} {one.says}" for one in table.indexes),
            "triggers": _listed(f"{one.says} (body {one.body})" for one in table.triggers),
            "rules": _listed(table.rules),
        }
        if self._options.mode != "append":
            facts["tables that inherit"] = _listed(table.children)
        if self._options.mode == "replace":
            facts["foreign keys of other tables"] = _listed(table.referring)
        if self._options.keys:
            facts["equality of keys"] = self._equality(table)
        for column in table.columns.values():
            if self._filled is None or column.name in self._filled:
                facts[f"column {column.name}"] = _type_of(column)
            elif column.is_required:
                facts["columns that need a value"] = column.name
        facts |= {one.name: ", ".join([str(one), _persistence(one), *_acting_on(one)]) for one in receipts}
        return facts

    def _equality(self, table: Table) -> str:
        try:
            keys = keys_of(table, self._options)
        except TargetRefused as refused:
            return refused.message
        return ", ".join(
            " ".join(filter(None, (part.column, part.operator, part.compared_as, part.collation)))
            for part in keys.parts
        )


def refuse_bad_receipts(table: Table) -> None:
    """Receipts must be there after a crash, must be seen, and must be as they were written."""
    refuse_unlogged(table)
    if acting := _acting_on(table):
        raise TargetRefused(
            f"{table} has {acting[0]}: receipts may not be written or found as they are",
            hint="remove it: the table is onceward's own",
        )


def _acting_on(table: Table) -> list[str]:
    """What hides rows of the table, or changes them."""
    triggers = [f"trigger {one.name!r}" for one in table.triggers if one.comes_between]
    return [*(["row security"] if table.has_row_security else []), *(f"rule {one!r}" for one in table.rules), *triggers]


def _persistence(table: Table) -> str:
    return f"with {', '.join(table.unlogged)} unlogged" if table.unlogged else "logged"


def _type_of(column: Column) -> str:
    says = f"{column.printed} collated {column.collation}" if column.collation else column.printed
    return f"{says}, computed" if column.is_computed else says


def _listed(says: Iterable[str]) -> str:
    return "; ".join(sorted(says)) or _NONE
