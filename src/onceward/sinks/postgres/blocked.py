"""Waits that the server cut off: for whom they were, as far as it can be asked afterwards.

No row is to blame for such a failure, and it says nothing about what an earlier try has left: that is for the receipts.
"""

from __future__ import annotations

import contextlib
from typing import TypeGuard

from onceward.connections.postgres import PostgresError, pooled
from onceward.errors import TargetUnavailable
from onceward.sinks.blocked import first_few, staging_cut_off
from onceward.sinks.postgres.options import Options

LOCK_TIMED_OUT = "55P03"
_CANCELLED = "57014"
# What keeps rows out of a table: a lock on all of it, held or waited for before us; or else a key that an unfinished
# transaction has added. Of those only the prepared ones are told, the others come and go.
_IN_THE_WAY = """\
WITH RECURSIVE tree AS (
    SELECT to_regclass(name)::oid AS oid FROM unnest(ARRAY[$1::text, $2::text]) AS name
    UNION ALL
    SELECT i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid
)
SELECT DISTINCT l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AS whole,
    CASE WHEN l.granted THEN l.mode ELSE 'a wait for ' || l.mode END || ' of ' || CASE WHEN l.pid IS NULL
        THEN 'the prepared transaction ' || coalesce(p.gid, '?')
        ELSE 'session ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') END
FROM pg_locks l JOIN tree t ON t.oid = l.relation LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    LEFT JOIN pg_locks x ON x.locktype = 'transactionid' AND x.granted AND x.virtualtransaction = l.virtualtransaction
        AND x.pid IS NULL AND l.pid IS NULL
    LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.pid IS DISTINCT FROM pg_backend_pid() AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
    AND (l.pid IS NULL OR l.mode <> 'RowExclusiveLock')
ORDER BY 1 DESC, 2
"""


def is_cut_off(error: Exception) -> TypeGuard[PostgresError]:
    """Whether a wait was too long for us, or somebody cancelled the statement."""
    return isinstance(error, PostgresError) and error.sqlstate in (LOCK_TIMED_OUT, _CANCELLED)


def explained(error: PostgresError, options: Options, receipts: str) -> PostgresError:
    """The same error, which says what the limit is and who is in the way."""
    address = options.address
    if error.sqlstate == LOCK_TIMED_OUT:
        limit = (
            f"{options.table} or its receipts were locked for longer than lock_timeout_s = {address.lock_timeout_s:g}"
        )
        return PostgresError(f"{error}: {limit}{_in_the_way(options, receipts)}", error.sqlstate)
    return PostgresError(f"{error}: timeout_s = {address.timeout_s:g} is how long a statement may take", error.sqlstate)


def staging_failed(
    error: PostgresError, options: Options, receipts: str, *, epoch: int, sink: str
) -> TargetUnavailable:
    """What a task fails with."""
    why = str(explained(error, options, receipts))
    return staging_cut_off(why, is_locked=error.sqlstate == LOCK_TIMED_OUT, epoch=epoch, sink=sink)


def _in_the_way(options: Options, receipts: str) -> str:
    with contextlib.suppress(PostgresError), pooled(options.address) as session:
        rows = session.run(_IN_THE_WAY, str(options.table), receipts)
        # A lock on the whole table explains it; without one, a key is left.
        found = [lock for whole, lock in rows if whole == rows[0][0]]
        return "; in the way: " + first_few(found) if found else ""
    return ""
