"""What the server's version, clock and settings mean for a job of some size: shown by `onceward doctor`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from onceward.connections.postgres import Address, pooled
from onceward.contracts import Finding, Severity, Workload

_OLDEST = 12
_SKEW_S = 30.0


def diagnose(address: Address, workload: Workload | None) -> Iterator[Finding]:
    """All that was looked at, fine or not; with what the job needs of prepared transactions, if it uses them."""
    with pooled(address) as session:
        ((version, now, room, taken),) = session.run(
            "SELECT current_setting('server_version_num')::int / 10000, extract(epoch FROM clock_timestamp())::float8, "
            "current_setting('max_prepared_transactions')::int, (SELECT count(*) FROM pg_prepared_xacts)"
        )
        limits = session.run(
            "SELECT name::text, setting::text || coalesce(unit, '') FROM pg_settings WHERE setting <> '0' AND name IN "
            "('transaction_timeout', 'idle_in_transaction_session_timeout')"
        )
    yield _version(version)
    yield _clock(abs(float(now) - time.time()))
    if workload is not None:
        yield _room(room, taken, workload)
    for name, value in limits:
        detail = f"{value}: staging or publishing a large epoch fails when it takes longer"
        yield Finding(name, Severity.WARNING, detail, f"ALTER ROLE CURRENT_USER SET {name} = 0")


def _version(version: int) -> Finding:
    if version >= _OLDEST:
        return Finding("server", Severity.OK, f"PostgreSQL {version}")
    fix = f"upgrade it: {_OLDEST} is the oldest that the sink is written for"
    return Finding("server", Severity.WARNING, f"PostgreSQL {version}", fix)


def _clock(skew_s: float) -> Finding:
    detail = f"the server's clock differs from ours by {skew_s:.1f} s"
    if skew_s < _SKEW_S:
        return Finding("clock", Severity.OK, detail)
    return Finding(
        "clock", Severity.WARNING, detail, "set both by NTP: ages of transactions are shown wrongly otherwise"
    )


def _room(room: int, taken: int, workload: Workload) -> Finding:
    epochs = workload.unpublished_epochs + 1
    wanted = workload.slots * epochs
    detail = (
        f"{taken} of {room} are taken; this job may need {wanted}: {workload.slots} slots in each of {epochs} epochs"
    )
    if room - taken >= wanted:
        return Finding("prepared transactions", Severity.OK, detail)
    fix = (
        f"ALTER SYSTEM SET max_prepared_transactions = {wanted + taken}, and restart the server; or lower "
        "spark.sql.shuffle.partitions, or the job's max_unpublished_epochs"
    )
    return Finding("prepared transactions", Severity.WARNING, detail, fix)
