"""Prepared transactions: their names in the server, and what became of one.

Tried on MariaDB 10.11. A prepared transaction outlives its connection and the server's death. Three things to know:

* As long as its connection lives, any other gets XAER_NOTA for it, exactly as if it had never been; and the server
  needs some milliseconds to notice that a client has gone. So XAER_NOTA proves nothing.
* While the server takes the transaction from a connection that ends, there is a moment at which XA COMMIT and XA
  ROLLBACK answer OK and do nothing: the server forgets the name, and the storage engine keeps the transaction and its
  locks until the server starts again and lists it anew. So OK proves nothing either.
* What proves something is the receipt, read with a lock that waits for whoever still holds it.

Nobody therefore asks for a transaction before its connection is gone, and every commit is looked at.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from onceward.connections.mysql import LOCK_WAIT_TIMEOUT, MySQLError, Session
from onceward.contracts import AlreadyCommitted, Committed, Lost, Outcome, RetryLater
from onceward.identity import TransactionName
from onceward.sinks.mysql.receipts import Receipts

log = logging.getLogger("onceward")

FORMAT = 20311
"""Told to the server with each name ("OW" in ASCII), so that ours are told from those of other users of XA."""

_UNKNOWN = 1397
_ROLLED_BACK = frozenset({1402, 1613, 1614})
# The server takes a transaction from a connection within milliseconds of its end.
_PATIENCE_S = 3.0
# Seldom: asking again and again would meet the moment of which the beginning of this page tells.
_BETWEEN_TRIES_S = 0.1
_BETWEEN_LOOKS_S = 0.002
# From the end of a connection, as other sessions see it, until the storage engine knows of it.
_GRACE_S = 0.02


def xid(transaction: TransactionName) -> str:
    """The name as it stands in XA statements. It has only letters, digits and underscores."""
    return f"'{transaction}', '', {FORMAT}"


def prepared(session: Session) -> Iterator[TransactionName]:
    """Every transaction of onceward's, of whatever job, that the server holds prepared."""
    for form, global_length, branch_length, data in session.execute("XA RECOVER"):
        text = data.decode("ascii", "replace") if isinstance(data, bytes) else str(data)
        name = TransactionName.parse(text)
        if name is not None and (form, global_length, branch_length) == (FORMAT, len(text), 0):
            yield name


def commit(session: Session, transaction: TransactionName, receipts: Receipts) -> Outcome:
    """Commit it, or find out what became of it. The session must not wait long for locks.

    Interleavings this survives: the reply to an earlier XA COMMIT was lost (its receipt is there); another driver is
    committing it right now (the locked look waits for its end); the executor's connection is not gone yet (it is still
    listed); its receipt was pruned (the watermark has passed it).
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        outcome = _try_commit(session, transaction, receipts)
        if not isinstance(outcome, RetryLater) or time.monotonic() > deadline:
            return outcome
        time.sleep(_BETWEEN_TRIES_S)


def _try_commit(session: Session, transaction: TransactionName, receipts: Receipts) -> Outcome:
    try:
        session.execute(f"XA COMMIT {xid(transaction)}")
    except MySQLError as error:
        if error.code != _UNKNOWN and error.code not in _ROLLED_BACK:
            raise
        return _fate(session, transaction, receipts)
    return Committed() if _has_receipt(session, transaction, receipts) else _forgotten(transaction)


def _has_receipt(session: Session, transaction: TransactionName, receipts: Receipts) -> bool | None:
    """None when a transaction that is neither committed nor rolled back holds it."""
    try:
        return receipts.is_committed(session, transaction)
    except MySQLError as error:
        if error.code != LOCK_WAIT_TIMEOUT:
            raise
        return None


def _forgotten(transaction: TransactionName) -> RetryLater:
    return RetryLater(
        f"{transaction} is neither committed nor rolled back, and the server does not list it any more; if it stays "
        "so, restart the server: it then finds it again, and nothing is lost",
        after_s=0.5,
    )


def _fate(session: Session, transaction: TransactionName, receipts: Receipts) -> Outcome:
    if transaction in prepared(session):
        return RetryLater(f"the connection that prepared {transaction} is still open", after_s=0.5)
    receipt = _has_receipt(session, transaction, receipts)
    if receipt is None:
        return _forgotten(transaction)
    if receipt:
        return AlreadyCommitted()
    # Read after the receipt: what removes a receipt raises the watermark in the same transaction.
    if transaction.epoch <= receipts.watermark_of(session, transaction):
        return AlreadyCommitted()
    return Lost(f"the server knows no prepared transaction {transaction} and has no receipt of it")


def roll_back(session: Session, transaction: TransactionName) -> None:
    """Roll it back if it is prepared; what was committed, or never was, is left alone.

    One whose connection stays open (an executor that the network has cut off) cannot be rolled back from here. Nobody
    will commit it either: it is left, said aloud, and found again by the reaper once its connection is gone.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            session.execute(f"XA ROLLBACK {xid(transaction)}")
            return
        except MySQLError as error:
            if error.code in _ROLLED_BACK:
                return
            if error.code != _UNKNOWN:
                raise
        if transaction not in prepared(session):
            return
        if time.monotonic() > deadline:
            text = "%s cannot be rolled back while the connection that prepared it is open"
            log.warning(text, transaction, extra={"transaction": transaction})
            return
        time.sleep(_BETWEEN_TRIES_S)


def await_end(session: Session, connection: int) -> None:
    """Wait until another connection of ours has ended; not for ever, for nothing is lost if it lasts."""
    deadline = time.monotonic() + _PATIENCE_S
    look = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {connection}"
    while session.execute(look) and time.monotonic() < deadline:
        time.sleep(_BETWEEN_LOOKS_S)
    time.sleep(_GRACE_S)
