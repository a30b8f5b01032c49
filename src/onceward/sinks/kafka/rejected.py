"""Which rows of an epoch the brokers do not take: those that do not fit their topics, and those they refuse anyway.

What fits is known without a word to the brokers. The rest is tried, in transactions that are aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import pyarrow as pa

from onceward.contracts import RejectedRow, SlotValues, TryAgain
from onceward.errors import DamagedFile, OncewardError
from onceward.sinks.bisection import Refusal, rejected_rows
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.kafka.errors import KafkaFailed, classify
from onceward.sinks.kafka.session import Session

Opened = Callable[[], AbstractContextManager[Session]]


def find_rejected(slots: Sequence[SlotValues], opened: Opened) -> list[RejectedRow]:
    """All of them. What `opened` gives is ended by a failure, and the next one is another."""
    found: list[RejectedRow] = []
    for slot in slots:
        named = {row.row: row for row in _misfits(slot, opened)}
        rest = [number for number in range(slot.rows) if number not in named]
        tried = rejected_rows([_only(slot, rest)], lambda part: _tried(part, opened))
        found += sorted([*named.values(), *(replace(row, row=rest[row.row]) for row in tried)], key=lambda row: row.row)
    return found


def _misfits(slot: SlotValues, opened: Opened) -> list[RejectedRow]:
    """Where one row cannot even be encoded, its whole batch goes the slow way."""

    def attempt(part: SlotValues) -> Refusal | None:
        with opened() as session:
            try:
                misfit = next(session.misfits(part), None)
            except (OncewardError, KafkaFailed, TryAgain):
                raise
            except Exception as error:
                return Refusal(f"{type(error).__name__}: {error}", is_certain=False)
        return None if misfit is None else Refusal(misfit.why)

    named: dict[int, str] = {}
    with opened() as session:
        try:
            for misfit in session.misfits(slot):
                named.setdefault(misfit.row, misfit.why)
            return [RejectedRow(slot.slot, row, why) for row, why in named.items()]
        except (OncewardError, KafkaFailed, TryAgain):
            raise
        except Exception:
            pass
    return rejected_rows([slot], attempt)


def _tried(part: SlotValues, opened: Opened) -> Refusal | None:
    try:
        with opened() as session:
            session.try_out(part)
    except DamagedFile:
        raise
    except KafkaFailed as failed:
        if isinstance(failed, TryAgain):
            raise
        return Refusal(str(failed), is_certain=classify(failed) is ErrorClass.ROW)
    return None


def _only(slot: SlotValues, numbers: Sequence[int]) -> SlotValues:
    """The slot with these of its rows."""
    wanted = frozenset(numbers)

    def read() -> Iterator[pa.RecordBatch]:
        first = 0
        for batch in slot.read():
            kept = [row for row in range(batch.num_rows) if first + row in wanted]
            first += batch.num_rows
            if len(kept) == batch.num_rows:
                yield batch
            elif kept:
                yield batch.take(pa.array(kept))

    return replace(slot, rows=len(numbers), read=read)
