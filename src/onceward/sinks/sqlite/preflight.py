"""Before anything moves: the file is a database that this user may write, and the table fits or can be made."""

from __future__ import annotations

import logging
import sqlite3

import pyarrow as pa

from onceward.errors import TargetRefused, attributed
from onceward.sinks.sqlite.compatibility import refuse_stream, refuse_table
from onceward.sinks.sqlite.facts import TargetFacts
from onceward.sinks.sqlite.options import Options
from onceward.sinks.sqlite.receipts import Receipts
from onceward.sinks.sqlite.table import create_table, describe, folded

log = logging.getLogger("onceward")


def check(options: Options, receipts: Receipts, facts: TargetFacts, schema: pa.Schema, *, output_mode: str) -> None:
    """Compare the table with the stream; make it, and the tables for receipts, where they are missing; then remember
    what the sink relies on."""
    try:
        with attributed(sink=receipts.sink):
            refuse_stream(schema, options, output_mode=output_mode)
            with options.file.transaction() as database:
                receipts.create(database)
                _check_table(database, options, schema)
                facts.take(database)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        raise TargetRefused(
            f"cannot write to the database {options.file.path}: {error}",
            hint="give an SQLite file that this user may write, in a folder that exists",
            sink=receipts.sink,
        ) from error


def _check_table(database: sqlite3.Connection, options: Options, schema: pa.Schema) -> None:
    found = describe(database, options.table)
    if found is not None:
        refuse_table(found, options, schema)
        return
    names = {folded(name): name for name in schema.names}
    statement = create_table(options.table, schema, [names[folded(key)] for key in options.keys])
    if not options.create_table:
        raise TargetRefused(f"there is no table {options.table!r} in {options.file.path}", hint=f"run: {statement};")
    database.execute(statement)
    log.info("made the table %r in %s", options.table, options.file.path)
