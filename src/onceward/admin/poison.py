"""Poison epochs: decided, but the target rejects a row. It and all later ones wait, until someone takes the row out."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from onceward.contracts import SlotValues, TransactionalWriteAheadSink
from onceward.epoch import RunContext, slot_values
from onceward.errors import ConfigurationError
from onceward.identity import SinkName
from onceward.journal import Diversion, Diversions, Manifest


@dataclass(frozen=True, slots=True)
class PoisonRow:
    """A row that the target rejects: where it stands in the epoch, why, and what is in it."""

    epoch: int
    sink: SinkName
    slot: int
    row: int
    why: str
    values: dict[str, Any]


def find_poison(context: RunContext) -> list[PoisonRow]:
    """The rows of the first unpublished epoch that a target rejects. The targets are left as they were."""
    manifest = _first_unpublished(context)
    if manifest is None:
        return []
    found: list[PoisonRow] = []
    for sink, slots in _slots(context, manifest):
        wanted = {(r.slot, r.row): r.why for r in sink.find_rejected(slots, manifest.job, manifest.epoch)}
        for slot in slots:
            numbers = {row: why for (number, row), why in wanted.items() if number == slot.slot}
            for row, values in _rows(slot, set(numbers)):
                found.append(PoisonRow(manifest.epoch, sink.name, slot.slot, row, numbers[row], values))
    return found


def divert_poison(context: RunContext, folder: Path) -> list[Path]:
    """Write the rejected rows to files in the folder, then record that they are left out; the files.

    The files are durable before the record is. A crash between the two is fixed by calling it again.
    """
    manifest, rows = _first_unpublished(context), find_poison(context)
    if manifest is None or not rows:
        raise ConfigurationError(
            "no row of an unpublished epoch is rejected by its target",
            hint="see `onceward status` for what is pending, and start the job again",
        )
    written = []
    for name in dict.fromkeys(row.sink for row in rows):
        mine = [row for row in rows if row.sink == name]
        path = folder / f"rejected-{manifest.job.digest}-{manifest.epoch}-{_as_file_name(name)}.jsonl"
        _write(path, mine)
        by_slot = {slot.slot: slot.transaction for slot in manifest.sinks[name].slots}
        left_out = {by_slot[s]: tuple(r.row for r in mine if r.slot == s) for s in {row.slot for row in mine}}
        Diversions(context.storage).drop_damaged(manifest.epoch, name)
        if not Diversions(context.storage).create(Diversion(manifest.epoch, name, left_out, str(path))):
            raise ConfigurationError(
                f"rows of epoch {manifest.epoch} were diverted before, and the target rejects others now",
                hint="fix the target, or rewind to the epoch with rows that it takes",
                sink=name,
            )
        written.append(path)
    return written


def _first_unpublished(context: RunContext) -> Manifest | None:
    epoch = context.watermark() + 1
    if epoch > context.decisions.decided():
        return None
    return context.register.valid_manifest(epoch)


def _slots(context: RunContext, manifest: Manifest) -> list[tuple[TransactionalWriteAheadSink, list[SlotValues]]]:
    found = []
    for name, entry in manifest.sinks.items():
        variant = context.variant_for(name, entry.slots[0].handle) if entry.slots else None
        if isinstance(variant, TransactionalWriteAheadSink):
            found.append((variant, [slot_values(context, slot, variant, manifest) for slot in entry.slots]))
    return found


def _rows(slot: SlotValues, wanted: set[int]) -> list[tuple[int, dict[str, Any]]]:
    if not wanted:
        return []
    found, first = [], 0
    for batch in slot.read():
        for row in sorted(wanted & set(range(first, first + batch.num_rows))):
            found.append((row, _plain(batch.slice(row - first, 1))))
        first += batch.num_rows
    return found


def _plain(row: pa.RecordBatch) -> dict[str, Any]:
    values: dict[str, Any] = row.to_pylist()[0]
    return values


def _write(path: Path, rows: list[PoisonRow]) -> None:
    """Whole or not at all; a second call replaces it by the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(
            {"epoch": r.epoch, "sink": r.sink, "slot": r.slot, "row": r.row, "why": r.why, "values": r.values},
            default=_as_text,
            ensure_ascii=False,
        )
        for r in rows
    ]
    unfinished = path.with_name(f".{path.name}")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _as_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _as_file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
