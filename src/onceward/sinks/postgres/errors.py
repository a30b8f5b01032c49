"""What the server's errors mean for an epoch that is being published: the one table, by SQLSTATE.

docs/targets/postgres.md shows the same table to people, and a test compares the two.
"""

from __future__ import annotations

from onceward.connections.postgres import PostgresError
from onceward.contracts import TryAgain
from onceward.errors import RowsRejected, TargetChanged
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.postgres.encode import DoesNotFit

NO_STATE = "none"
"""The connection failed, and the server said nothing."""

CLASSES: dict[ErrorClass, dict[str, str]] = {
    ErrorClass.RETRY: {
        NO_STATE: "the connection failed, or could not be made",
        "08": "connection exceptions",
        "25006": "read-only: a standby, or a primary that became one",
        "25P03": "the transaction was idle for too long",
        "25P04": "the transaction took too long",
        "40": "deadlocks and failures to serialise",
        "53": "no memory, disk or connections left",
        "55006": "an object is in use",
        "55P03": "a lock was not to be had in time",
        "57": "cancelled, shut down, starting up",
        "58": "errors of the system under the server",
        "72000": "snapshot too old",
    },
    ErrorClass.ROW: {
        "22": "a value that its column or a function does not take",
        "23": "a constraint: null, unique, foreign key, check, exclusion; also when it is deferred to the commit",
        "44000": "a view's check option",
        "54": "a limit: an index entry too long, a document nested too deeply",
        "P0": "raised by a trigger or function in PL/pgSQL",
    },
    ErrorClass.TARGET: {
        "3F000": "the schema is gone",
        "42501": "a privilege is missing",
        "42703": "a column is gone",
        "42P01": "a table is gone",
        "42P10": "the unique index of the keys is gone",
        "55000": "the table is not in a state for this, such as published updates without a replica identity",
    },
}
_BY_CODE = {code: meaning for meaning, codes in CLASSES.items() for code in codes}
# What the driver could not put into the server's format; it keeps the reason to itself.
_NOT_ENCODED = "Error occurred writing COPY data"


def classify(error: Exception) -> ErrorClass:
    """By the whole code, or by its class."""
    if isinstance(error, DoesNotFit):
        return ErrorClass.ROW
    if not isinstance(error, PostgresError):
        return ErrorClass.UNKNOWN
    if not error.sqlstate and _NOT_ENCODED in str(error):
        return ErrorClass.UNKNOWN
    code = error.sqlstate or NO_STATE
    return _BY_CODE.get(code) or _BY_CODE.get(code[:2]) or ErrorClass.UNKNOWN


def translated(error: Exception, table: str, *, epoch: int, sink: str | None = None) -> Exception:
    """The error as the publisher understands it; the same one when nobody knows what it means."""
    match classify(error):
        case ErrorClass.RETRY:
            return TryAgain(str(error))
        case ErrorClass.ROW:
            return RowsRejected(
                f"{table} does not take a row: {error}",
                epoch=epoch,
                sink=sink,
                hint=RowsRejected.hint_for("the table"),
            )
        case ErrorClass.TARGET:
            return TargetChanged(
                f"{table} is not as it was when the job started: {error}",
                epoch=epoch,
                sink=sink,
                hint="put it back, then start again: the start examines the table, and says what to fix. If a trigger "
                "says so for single rows, `onceward poison show FILE` names them. The epoch stays staged",
            )
        case ErrorClass.UNKNOWN:
            return error
