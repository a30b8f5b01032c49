"""Every event as a log line for those who look closely: at the level DEBUG, with what it is about as fields."""

from __future__ import annotations

import logging
from typing import assert_never

from onceward.contracts.events import (
    Begun,
    Decided,
    Delivered,
    EngineReported,
    Event,
    Failed,
    PreCommitted,
    Retried,
    Settled,
    Staged,
)

log = logging.getLogger("onceward.epochs")


def log_event(event: Event) -> None:
    """A listener."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    sink = event.sink if isinstance(event, Retried | Delivered) else None
    log.debug("%s", _in_words(event), extra={"epoch": event.epoch, **({"sink": sink} if sink else {})})


def _in_words(event: Event) -> str:
    match event:
        case Begun():
            again = f", taken over ({event.takeover})" if event.takeover else ""
            return f"epoch {event.epoch} begins, {event.guarantee}{again}"
        case Staged():
            rows, size = sum(slot.rows for slot in event.slots), sum(slot.bytes for slot in event.slots)
            return f"epoch {event.epoch} is staged: {rows} rows, {size} bytes in {len(event.slots)} slots"
        case PreCommitted():
            return f"epoch {event.epoch} is pre-committed"
        case Decided():
            return f"epoch {event.epoch} is decided"
        case Retried():
            return f"epoch {event.epoch}: sink {event.sink!r} failed and is tried again: {event.why}"
        case Delivered():
            return f"epoch {event.epoch}: sink {event.sink!r} has it, {event.rows} rows in {event.slots} slots"
        case Settled():
            return f"epoch {event.epoch} is settled"
        case Failed():
            return f"epoch {event.epoch} failed and was aborted: {event.error}: {event.why}"
        case EngineReported():
            return f"epoch {event.epoch}: Spark has read {event.input_rows} rows"
        case _:
            assert_never(event)
