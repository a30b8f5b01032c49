"""Waits that the server cut off: for whom they were, as far as it can be asked afterwards.

No row is to blame for such a failure, and it says nothing about what an earlier try has left: that is for the receipts.
"""

from __future__ import annotations

import contextlib

from onceward.connections.mysql import LOCK_WAIT_TIMEOUT, TOOK_TOO_LONG, MySQLError
from onceward.errors import TargetUnavailable
from onceward.sinks.blocked import first_few, staging_cut_off
from onceward.sinks.mysql.options import Options
from onceward.sinks.mysql.session import connect


def is_cut_off(error: Exception) -> bool:
    """Whether a wait, or a statement, was too long."""
    return isinstance(error, MySQLError) and (error.code == LOCK_WAIT_TIMEOUT or error.code in TOOK_TOO_LONG)


def explained(error: MySQLError, options: Options) -> MySQLError:
    """The same error; where a wait was cut off, it says what the limit is and who may be in the way."""
    if error.code == LOCK_WAIT_TIMEOUT:
        locked = f"{options.table!r} or its receipts were locked for longer than lock_timeout_s"
        text = f"{error.text}: {locked} = {options.lock_timeout_s:g}{_unfinished(options)}"
        return MySQLError(error.code, text)
    if error.code not in TOOK_TOO_LONG:
        return error
    return MySQLError(error.code, f"{error.text}: timeout_s = {options.timeout_s:g} is how long a statement may take")


def staging_failed(error: MySQLError, options: Options, *, epoch: int, sink: str) -> TargetUnavailable:
    """What a task fails with."""
    why = str(explained(error, options))
    return staging_cut_off(why, is_locked=error.code == LOCK_WAIT_TIMEOUT, epoch=epoch, sink=sink)


def _unfinished(options: Options) -> str:
    """The server tells them to those with the privilege PROCESS, and prepared transactions to those who may recover."""
    found: list[str] = []
    with contextlib.suppress(MySQLError), connect(options) as session:
        with contextlib.suppress(MySQLError):
            found += [
                f"the transaction of session {thread} ({user})"
                for thread, user in session.execute(
                    "SELECT t.trx_mysql_thread_id, p.USER FROM information_schema.INNODB_TRX AS t "
                    "JOIN information_schema.PROCESSLIST AS p ON p.ID = t.trx_mysql_thread_id "
                    "WHERE p.ID <> CONNECTION_ID() ORDER BY t.trx_started"
                )
            ]
        prepared = [data.decode("ascii", "replace") for *_, data in session.execute("XA RECOVER")]
        found += [f"the prepared transaction {name}" for name in sorted(prepared)]
    return "; unfinished are " + first_few(found) if found else ""
