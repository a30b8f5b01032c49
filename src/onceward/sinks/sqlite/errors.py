"""What SQLite's errors mean for an epoch that is being published: the one table, by primary result code."""

from __future__ import annotations

import sqlite3

from onceward.contracts import TryAgain
from onceward.errors import RowsRejected, TargetChanged
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.sqlite.encode import DoesNotFit

CLASSES: dict[ErrorClass, dict[int, str]] = {
    ErrorClass.RETRY: {
        sqlite3.SQLITE_BUSY: "another process has the database locked",
        sqlite3.SQLITE_LOCKED: "a table is locked",
        sqlite3.SQLITE_NOMEM: "no memory left",
        sqlite3.SQLITE_INTERRUPT: "interrupted",
        sqlite3.SQLITE_IOERR: "the disk failed",
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
        sqlite3.SQLITE_PROTOCOL: "the lock was not to be had",
        sqlite3.SQLITE_SCHEMA: "the schema changed while a statement was prepared",
    },
    ErrorClass.ROW: {
        sqlite3.SQLITE_CONSTRAINT: "a constraint, or RAISE in a trigger",
        sqlite3.SQLITE_MISMATCH: "a value of the wrong kind for the row id or a strict table",
        sqlite3.SQLITE_TOOBIG: "a text or blob that is too long",
    },
    ErrorClass.TARGET: {
        sqlite3.SQLITE_PERM: "no access",
        sqlite3.SQLITE_READONLY: "the file may not be written any more",
        sqlite3.SQLITE_CORRUPT: "the file is damaged",
        sqlite3.SQLITE_AUTH: "not authorised",
        sqlite3.SQLITE_NOTADB: "the file is no database any more",
    },
}
_BY_CODE = {code: meaning for meaning, codes in CLASSES.items() for code in codes}


def classify(error: Exception) -> ErrorClass:
    """By the code without what extends it. What Python's own module refuses to send has none."""
    if isinstance(error, DoesNotFit):
        return ErrorClass.ROW
    code = getattr(error, "sqlite_errorcode", None)
    return _BY_CODE.get(code & 0xFF, ErrorClass.UNKNOWN) if code is not None else ErrorClass.UNKNOWN


def translated(error: Exception, table: str, *, epoch: int, sink: str) -> Exception:
    """The error as the publisher understands it; the same one when nobody knows what it means."""
    match classify(error):
        case ErrorClass.RETRY:
            return TryAgain(str(error))
        case ErrorClass.ROW:
            where = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
            return RowsRejected(
                f"table {table!r} does not take a row{where}: {error}",
                epoch=epoch,
                sink=sink,
                hint=RowsRejected.hint_for("the table"),
            )
        case ErrorClass.TARGET:
            return TargetChanged(
                f"the database of table {table!r} is not as it was when the job started: {error}",
                epoch=epoch,
                sink=sink,
                hint="put it back, then start again; the epoch stays staged",
            )
        case ErrorClass.UNKNOWN:
            return error
