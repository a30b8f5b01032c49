"""What in a table makes a prepared insert hold up another: then rows are not staged in prepared transactions.

A prepared transaction keeps its locks until its epoch is published. Its rows alone disturb nobody. But whoever adds a
key that stands in a unique index under an unfinished transaction waits for its end: the same key in two slots of an
epoch, or in a second attempt of a slot, waits for a decision that waits for it, and no server sees such a circle. A
foreign key locks rows of the other table, and what a trigger does nobody knows.

The receipts have a unique index too; their key holds the name of the transaction, so no two are ever the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from onceward.contracts import Finding, Severity
from onceward.errors import ConfigurationError, TargetRefused
from onceward.sinks.blocked import first_few

log = logging.getLogger("onceward")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One of them. As long as the stream leaves one of the `numbered` columns to the server, which gives no two rows
    the same value there, it is none."""

    detail: str
    numbered: frozenset[str] = frozenset()


def standing(obstacles: Iterable[Obstacle], filled: Iterable[str] = ()) -> str | None:
    """What stands against rows that bring values for these columns; None when nothing does."""
    given = frozenset(filled)
    return first_few([one.detail for one in obstacles if one.numbered <= given], separator="; ") or None


def refusal(table: str, why: str, *, sink: str) -> TargetRefused:
    """For whoever asked for prepared transactions all the same."""
    return TargetRefused(
        f"appends to {table} cannot wait in prepared transactions: {why}",
        hint="leave two_phase out or say two_phase=False, and they go through the write-ahead log",
        sink=sink,
    )


def refuse_mode(mode: str) -> None:
    """For whoever asked for prepared transactions: only appends can wait there."""
    if mode != "append":
        raise ConfigurationError(
            f"mode {mode} cannot wait in prepared transactions",
            hint="leave two_phase out: upserts and replacements go through the write-ahead log",
        )


def asked_for_log(mode: str) -> str:
    """Why rows go through the write-ahead log where that was asked for: by the mode, or by the option."""
    return "two_phase=False" if mode == "append" else f"as every {mode}"


def warn_of_log(sink: str, why: str) -> None:
    """At a start where nobody asked for the write-ahead log."""
    text = "sink %r: appends go through the write-ahead log: %s (with two_phase=False this is not told)"
    log.warning(text, sink, why)


def log_finding(why: str) -> Finding:
    """The mechanism, for `onceward doctor`."""
    return Finding("mechanism", Severity.OK, f"through the write-ahead log: {why}")
