"""What the server's version, clock and settings mean for a job of some size: shown by `onceward doctor`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from onceward.connections.postgres import Address, borrowed
from onceward.contracts import Finding, Grade, Needs

_OLDEST = 12
_SKEW_S = 30.0


def cautions(address: Address, needs: Needs | None) -> Iterator[Finding]:
    """All that was looked at, fine or not; with what the job needs of prepared transactions, if it uses them."""
    with borrowed(address) as session:
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
    if needs is not None:
        yield _room(room, taken, needs)
    for name, value in limits:
        says = f"{value}: staging or publishing a large epoch fails when it takes longer"
        yield Finding(name, Grade.WARNING, says, f"ALTER ROLE CURRENT_USER SET {name} = 0")


def _version(version: int) -> Finding:
    if version >= _OLDEST:
        return Finding("server", Grade.FINE, f"PostgreSQL {version}")
    mend = f"upgrade it: {_OLDEST} is the oldest that the sink is written for"
    return Finding("server", Grade.WARNING, f"PostgreSQL {version}", mend)


def _clock(skew_s: float) -> Finding:
    says = f"the server's clock differs from ours by {skew_s:.1f} s"
    if skew_s < _SKEW_S:
        return Finding("clock", Grade.FINE, says)
    return Finding("clock", Grade.WARNING, says, "set both by NTP: ages of transactions are shown wrongly otherwise")


def _room(room: int, taken: int, needs: Needs) -> Finding:
    epochs = needs.unpublished_epochs + 1
    wanted = needs.slots * epochs
    says = f"{taken} of {room} are taken; this job may need {wanted}: {needs.slots} slots in each of {epochs} epochs"
    if room - taken >= wanted:
        return Finding("prepared transactions", Grade.FINE, says)
    mend = (
        f"ALTER SYSTEM SET max_prepared_transactions = {wanted + taken}, and restart the server; or lower "
        "spark.sql.shuffle.partitions, or the job's max_unpublished_epochs"
    )
    return Finding("prepared transactions", Grade.WARNING, says, mend)
