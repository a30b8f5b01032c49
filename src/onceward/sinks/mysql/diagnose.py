"""What the server's version, clock and settings mean for a job: shown by `onceward doctor`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from onceward.connections.mysql import Session
from onceward.contracts import Finding, Severity
from onceward.sinks.mysql.table import ask_server

_SKEW_S = 30.0
_SHORT_S = 3600


def diagnose(session: Session, *, is_two_phase: bool) -> Iterator[Finding]:
    """All that was looked at, fine or not."""
    server = ask_server(session)
    yield Finding("server", Severity.OK, server.name)
    now = session.execute("SELECT UNIX_TIMESTAMP(NOW(6)) + 0e0")[0][0]
    yield _clock(abs(float(now) - time.time()))
    variables = dict(
        session.execute(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', "
            "'wait_timeout', 'idle_transaction_timeout', 'idle_write_transaction_timeout')"
        )
    )
    yield _durability("innodb_flush_log_at_trx_commit", str(variables["innodb_flush_log_at_trx_commit"]))
    if str(variables.get("log_bin", "OFF")).upper() in ("ON", "1"):
        yield _durability("sync_binlog", str(variables.get("sync_binlog")))
    if is_two_phase:
        held = len(session.execute("XA RECOVER"))
        yield Finding("prepared transactions", Severity.OK, f"the server holds {held}, of whatever user of XA")
        for name in ("wait_timeout", "idle_transaction_timeout", "idle_write_transaction_timeout"):
            yield from _patience(name, int(variables.get(name) or 0))


def _clock(skew_s: float) -> Finding:
    detail = f"the server's clock differs from ours by {skew_s:.1f} s"
    if skew_s < _SKEW_S:
        return Finding("clock", Severity.OK, detail)
    return Finding("clock", Severity.WARNING, detail, "set both by NTP: times of receipts are shown wrongly otherwise")


def _durability(name: str, value: str) -> Finding:
    if value == "1":
        return Finding(name, Severity.OK, "1: what the server confirms is on its disk")
    detail = f"{value}: the server may forget with the power what it has confirmed, prepared transactions among it"
    return Finding(name, Severity.WARNING, detail, f"SET GLOBAL {name} = 1; and in the server's configuration")


def _patience(name: str, seconds: int) -> Iterator[Finding]:
    if 0 < seconds < _SHORT_S:
        detail = f"{seconds}: a task that computes for longer between two of its loads loses its connection and fails"
        yield Finding(name, Severity.WARNING, detail, f"SET GLOBAL {name} = {28800 if name == 'wait_timeout' else 0}")
