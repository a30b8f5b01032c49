"""What each error of the server means for the epoch that is being published: the one table that everything asks.

docs/targets/mysql.md shows it to people, and a test compares the two. What is not in it is found out by bisection.
"""

from __future__ import annotations

from collections.abc import Mapping

from onceward.connections.mysql import LOCK_WAIT_TIMEOUT, LOST_CONNECTION, TOOK_TOO_LONG, MySQLError
from onceward.contracts import TryAgain
from onceward.errors import RowsRejected, TargetChanged, TargetRefused
from onceward.sinks.error_class import ErrorClass

DUPLICATE = 1062

_PASSES = {
    **dict.fromkeys(sorted(LOST_CONNECTION), "the connection is lost, or the server is away or shutting down"),
    **dict.fromkeys(sorted(TOOK_TOO_LONG), "a statement took longer than `timeout_s`"),
    LOCK_WAIT_TIMEOUT: "others hold a lock for longer than `lock_timeout_s`",
    1213: "a deadlock: the server chose our transaction to give way",
    1412: "the table was altered while the transaction began; the next one looks at it anew",
    1317: "the statement was killed",
    1040: "too many connections",
    1203: "too many connections of this user",
    1226: "the user has used up what it may do in an hour",
    1129: "the host is blocked after too many broken connections",
    1047: "a Galera node is not ready",
    3100: "group replication did not take the transaction",
    3101: "group replication rolled the transaction back",
    1180: "the commit failed inside the server",
    1290: "the server is read-only",
    1792: "transactions are read-only",
    1836: "the server is read-only",
    1036: "the table is read-only",
    1021: "the disk is full",
    1114: "the table or its tablespace is full",
    1037: "the server is out of memory",
    1041: "the server is out of memory",
    1206: "the lock table is full",
    1637: "too many transactions at once",
}
_ROWS = {
    DUPLICATE: "a unique index has this key",
    1586: "a unique index has this key",
    1048: "NULL where the column has none",
    1264: "a number or time out of the column's range",
    1265: "a value that the column would cut or does not know",
    1292: "a text that is no number or time",
    1300: "a text that is not in the column's character set",
    1366: "a text that is not in the column's character set",
    1406: "a value too long for the column",
    1690: "a number out of range in an expression",
    1365: "a division by zero in a generated column or trigger",
    1411: "a value that a function does not take",
    1416: "a value that is no geometry",
    1118: "a row larger than a page takes",
    1301: "a value larger than `max_allowed_packet`",
    1216: "a foreign key has no such row",
    1217: "a foreign key still refers to the row",
    1451: "a foreign key still refers to the row",
    1452: "a foreign key has no such row",
    1526: "the table has no partition for the row",
    1748: "the row is in no partition of the statement",
    1644: "a trigger refuses the row by SIGNAL",
    3819: "a CHECK constraint",
    4025: "a CHECK constraint",
    3140: "a text that is no JSON",
    3141: "a text that is no JSON",
    3156: "a JSON value that cannot be cast",
    3751: "a value that a functional index would cut",
    3752: "a value out of a functional index's range",
    3903: "a JSON value that a functional index cannot cast",
}
_TARGET = {
    1146: "the table is gone",
    1049: "the database is gone",
    1051: "the table is gone",
    1054: "a column is gone",
    1136: "the columns are not those of the start",
    1364: "a column that the stream does not have needs a value now",
    1288: "it is no table any more",
    1347: "it is no table any more",
    1348: "it is no table any more",
    1906: "a column is computed by the table now",
    3105: "a column is computed by the table now",
    167: "the AUTO_INCREMENT column has no number left",
    1467: "the AUTO_INCREMENT column has no number left",
    1305: "a trigger calls what is not there",
    1449: "the definer of a trigger is gone",
    1044: "a privilege is gone",
    1045: "the user or its password are gone",
    1130: "this host may not connect any more",
    1142: "a privilege is gone",
    1143: "a privilege is gone",
    1227: "a privilege is gone",
    1370: "a privilege is gone",
    1698: "the user or its password are gone",
    1148: "`local_infile` is off",
    3948: "`local_infile` is off",
    4166: "`local_infile` is off",
    1665: "`binlog_format` became STATEMENT",
    1785: "a table without transactions, under `enforce_gtid_consistency`",
}

CLASSES: Mapping[ErrorClass, Mapping[int, str]] = {
    ErrorClass.RETRY: _PASSES,
    ErrorClass.ROW: _ROWS,
    ErrorClass.TARGET: _TARGET,
}
"""The server's codes, and what they mean, in the words of the documentation."""


class RowRefused(TargetRefused):
    """The table would not store a row as it is."""


def classify(error: Exception) -> ErrorClass:
    """What to do about it."""
    if isinstance(error, RowRefused):
        return ErrorClass.ROW
    code = error.code if isinstance(error, MySQLError) else None
    return next((kind for kind, codes in CLASSES.items() if code in codes), ErrorClass.UNKNOWN)


def reason(error: Exception) -> str:
    """What is wrong, without what to do about it."""
    return error.message if isinstance(error, RowRefused) else str(error)


def translated(error: Exception, table: str, *, epoch: int, sink: str) -> Exception:
    """The error as the publisher understands it; the same one when nobody knows what it means."""
    match classify(error):
        case ErrorClass.RETRY:
            return TryAgain(str(error))
        case ErrorClass.ROW:
            return RowsRejected(
                f"table {table!r} does not take a row: {reason(error)}",
                epoch=epoch,
                sink=sink,
                hint=RowsRejected.hint_for("the table"),
            )
        case ErrorClass.TARGET:
            return changed(error, table, epoch=epoch, sink=sink)
        case ErrorClass.UNKNOWN:
            return error


def changed(error: Exception, table: str, *, sink: str, epoch: int | None = None) -> TargetChanged:
    """Something that was there at the start is gone, or not as it was."""
    return TargetChanged(
        f"table {table!r} is not as it was when the job started: {error}",
        epoch=epoch,
        sink=sink,
        hint="put it back, or start again: the start examines the table as it is now, and goes on or says what to "
        "fix; nothing is lost, what is staged stays staged",
    )
