"""What in a table would change, drop or hide rows behind our back, or lose them in a crash: refused by name."""

from __future__ import annotations

from onceward.connections.postgres import Session
from onceward.errors import TargetRefused
from onceward.sinks.postgres.options import Options
from onceward.sinks.postgres.table import Table, Trigger


def operations(options: Options) -> frozenset[str]:
    """What is done to the table's rows."""
    done = {"append": {"INSERT"}, "replace": {"INSERT", "DELETE"}, "upsert": {"INSERT", "UPDATE"}}[options.mode]
    return frozenset(done | ({"DELETE"} if options.deleted is not None else set()))


def triggers_between(table: Table, options: Options, *done: str) -> list[Trigger]:
    """Triggers that fire before a row is written and may change it or leave it out, when this is done to it."""
    wanted = operations(options) & frozenset(done or operations(options))
    return [trigger for trigger in table.triggers if trigger.comes_between & wanted]


def refuse_hazards(table: Table, options: Options) -> None:
    """Raise `TargetRefused` with what stands in the way, and the statement that removes it."""
    if table.kind not in ("r", "p") or table.is_temporary:
        raise TargetRefused(f"{options.table} is no table that takes rows by COPY", hint="name the table behind it")
    if table.has_row_security:
        raise TargetRefused(
            f"{options.table} has row security, and COPY cannot go through it", hint="use a role with BYPASSRLS"
        )
    refuse_unlogged(table)
    if table.foreign:
        raise TargetRefused(
            f"partition {table.foreign[0]!r} of {options.table} is a foreign table: its rows are committed by another "
            "server, and not together with the receipt",
            hint=f"detach it: ALTER TABLE {options.table} DETACH PARTITION {table.foreign[0]}",
        )
    if table.rules:
        raise TargetRefused(
            f"{options.table} has the rule {table.rules[0]!r}, which may do something else instead of writing a row",
            hint=f"run: DROP RULE {table.rules[0]} ON {options.table}; or make it a trigger",
        )
    if table.children and options.mode != "append":
        raise TargetRefused(
            f"table {table.children[0]!r} inherits from {options.table}: an {options.mode} would meet its rows, which "
            "no unique index of this table knows",
            hint=f"run: ALTER TABLE {table.children[0]} NO INHERIT {options.table}; or make it a partition",
        )
    if table.referring and options.mode == "replace":
        raise TargetRefused(
            f"foreign key {table.referring[0]!r} of another table refers to {options.table}: a replacement deletes all "
            "rows, and theirs with them or not at all",
            hint="drop the foreign key, or use mode='upsert' with keys",
        )
    _refuse_triggers(table, options)


def _refuse_triggers(table: Table, options: Options) -> None:
    unnamed = [one for one in triggers_between(table, options) if one.name not in options.triggers]
    if unnamed:
        first = unnamed[0]
        raise TargetRefused(
            f"trigger {first.name!r} of {first.table!r} fires before a row is written, and may change it or leave it "
            "out",
            hint=f"if that is meant, say so: triggers=[{', '.join(repr(one.name) for one in unnamed)}]; or make it an "
            f"AFTER trigger; or run: ALTER TABLE {options.table} DISABLE TRIGGER {first.name}",
        )


def refuse_kept(session: Session, rows: str, table: Table) -> None:
    """After a DELETE of rows that a trigger might have kept: raise where one is left."""
    if session.run(f"SELECT EXISTS (SELECT FROM {rows})")[0][0]:
        raise TargetRefused(
            f"a trigger of {table} keeps rows from being deleted",
            hint="let the trigger return OLD, or make it an AFTER trigger; the epoch stays staged",
        )


def refuse_unlogged(table: Table) -> None:
    """An unlogged table is empty after a crash of its server, and nothing would tell onceward."""
    if table.unlogged:
        raise TargetRefused(
            f"table {table.unlogged[0]!r} is unlogged: when its server crashes it is emptied",
            hint=f"run: ALTER TABLE {table.schema}.{table.unlogged[0]} SET LOGGED",
        )


def refuse_bad_receipts(table: Table) -> None:
    """Receipts must be there after a crash, must be seen, and must be as they were written."""
    refuse_unlogged(table)
    if acting := acting_on(table):
        raise TargetRefused(
            f"{table} has {acting[0]}: receipts may not be written or found as they are",
            hint="remove it: the table is onceward's own",
        )


def acting_on(table: Table) -> list[str]:
    """What hides rows of the table, or changes them."""
    triggers = [f"trigger {one.name!r}" for one in table.triggers if one.comes_between]
    return [*(["row security"] if table.has_row_security else []), *(f"rule {one!r}" for one in table.rules), *triggers]
