"""Slots that are staged and sent by hand, with rows that can be counted, and work in a thread of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from mysql_workspace import JOB, MySQLWorkspace, pre_committed

from onceward.connections.mysql import MySQLError
from onceward.contracts import Handle, Receipt, RetryLater, SlotContext, SlotValues
from onceward.identity import Fingerprint, RunId
from onceward.testing.conformance.base import AT, batches
from onceward.testing.engine import SCHEMA

REPETITIONS = 100


def context(sink: Any, epoch: int, slot: int = 0, attempt: int = 1) -> SlotContext:
    fingerprint = Fingerprint(f"fingerprintof{epoch:03d}")
    return SlotContext(JOB, sink.name, epoch, 0, slot, attempt, RunId("rrrrrr"), AT, fingerprint)


def stage(sink: Any, where: SlotContext) -> Handle:
    transaction = sink.begin_transaction(where)
    for batch in batches(where.epoch, where.slot):
        sink.invoke(transaction, batch)
    return pre_committed(sink, transaction)


def values(sink: Any, epoch: int, *slots: int) -> list[SlotValues]:
    return [
        SlotValues(
            slot,
            2,
            Receipt(JOB.name, JOB.generation, sink.name, epoch, slot, Fingerprint("f")),
            lambda slot=slot: iter(batches(epoch, slot)),
        )
        for slot in slots
    ]


def appending(workspace: MySQLWorkspace, **options: Any) -> Any:
    sink = workspace.sink(**options)
    sink.check(SCHEMA, output_mode="append")
    return sink


def ids(workspace: MySQLWorkspace) -> list[int]:
    return sorted(row["id"] for row in workspace.rows())


def once(*epochs: int) -> list[int]:
    return sorted(10 * epoch + row for epoch in epochs for row in (0, 2))


# --- lost replies -------------------------------------------------------------------------------


def until_known(sink: Any, handle: Handle) -> Any:
    while True:
        with contextlib.suppress(MySQLError):
            outcome = sink.commit(handle)
            if not isinstance(outcome, RetryLater):
                return outcome


# --- two drivers, and readers -------------------------------------------------------------------


def in_background(work: Callable[[], object]) -> threading.Event:
    finished = threading.Event()

    def run() -> None:
        work()
        finished.set()

    threading.Thread(target=run, daemon=True).start()
    return finished
