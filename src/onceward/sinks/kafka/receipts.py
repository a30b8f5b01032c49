"""Receipts as records of a compacted topic: what stands in them, and the pure reading of it.

The key of a receipt is `["ow1", job, sink, generation, epoch, slot]` in JSON, its value
`{"fingerprint": …, "slots": […], "rows": …}`: one record for each transaction, named by the lowest of its slots. Slots
that have a receipt are never sent again, so no two transactions of an epoch share that slot, and compaction, which
keeps the last record of each key, keeps them all. The key `["ow1", job, sink, generation, "settled"]` is the watermark.

The key `["ow1-id", job, sink, generation, id]` announces a transactional id before the first publish under it, and is
removed when another driver has taken that id from its owner.

Reading does not depend on the order of different keys: receipts are never taken back, and the highest watermark
counts. A receipt that is settled is removed by a record without a value, which only makes room: what is below the
watermark is not asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceward.contracts import Receipt
from onceward.errors import DamagedFile
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, SinkName

_VERSION = "ow1"
# Releases that know no such records pass over them.
_OF_IDS = "ow1-id"
_SETTLED = "settled"

Record = tuple[bytes, bytes | None]
"""Key and value."""


@dataclass(slots=True)
class Receipts:
    """What the receipts topic holds of one job's name and one sink, of whatever generation."""

    job: JobName
    sink: SinkName
    _slots: dict[tuple[Generation, int], dict[int, Fingerprint]] = field(default_factory=dict)
    _keys: dict[tuple[Generation, int], set[int]] = field(default_factory=dict)
    _settled: dict[Generation, int] = field(default_factory=dict)
    _ids: set[tuple[Generation, str]] = field(default_factory=set)

    def add(self, key: bytes, value: bytes | None) -> None:
        """Take in one record of the topic; those of others are passed over."""
        # They may be many, and need not be understood for that.
        if key.startswith(_begins(_OF_IDS, self.job, self.sink)):
            self._add_id(key, value)
            return
        found = _parsed(key) if key.startswith(_begins(_VERSION, self.job, self.sink)) else None
        if found is None or found[:3] != [_VERSION, self.job, self.sink]:
            return
        generation, rest = Generation(found[3]), found[4:]
        if value is None:
            self._keys.get((generation, rest[0]), set()).discard(rest[-1])
            return
        body = _parsed_body(key, value)
        try:
            if rest == [_SETTLED]:
                self._settled[generation] = max(self.watermark(generation), int(body["settled"]))
                return
            epoch, first = int(rest[0]), int(rest[1])
            fingerprint = Fingerprint(body["fingerprint"])
            self._slots.setdefault((generation, epoch), {}).update(dict.fromkeys(body["slots"], fingerprint))
            self._keys.setdefault((generation, epoch), set()).add(first)
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(key) from error

    def _add_id(self, key: bytes, value: bytes | None) -> None:
        found = _parsed(key)
        if found is not None and len(found) == 5:
            one = (Generation(found[3]), str(found[4]))
            (self._ids.discard if value is None else self._ids.add)(one)

    def ids(self, generation: Generation) -> frozenset[str]:
        """The transactional ids under which somebody may publish for this generation."""
        return frozenset(one for found, one in self._ids if found == generation)

    def slots(self, generation: Generation, epoch: int) -> dict[int, Fingerprint]:
        """The slots of an epoch that have their receipt."""
        return self._slots.get((generation, epoch), {})

    def watermark(self, generation: Generation) -> int:
        """The epoch up to which receipts may be gone; -1 when none is."""
        return self._settled.get(generation, -1)

    def all_receipts(self) -> Iterator[Receipt]:
        """All that still stand: above the watermark, and those of each generation's newest epoch."""
        newest: dict[Generation, int] = {}
        for generation, epoch in self._slots:
            newest[generation] = max(epoch, newest.get(generation, -1))
        for (generation, epoch), slots in self._slots.items():
            if epoch > self.watermark(generation) or epoch == newest[generation]:
                for slot, fingerprint in slots.items():
                    yield Receipt(self.job, generation, self.sink, epoch, slot, fingerprint)

    # --- what to write --------------------------------------------------------------------------

    def receipt(self, receipts: Sequence[Receipt], rows: int) -> Record:
        """The record for the slots of one transaction."""
        one = receipts[0]
        slots = sorted(receipt.slot for receipt in receipts)
        body = {"fingerprint": one.fingerprint, "slots": slots, "rows": rows}
        return self._key(one.generation, one.epoch, slots[0]), _dumped(body)

    def raised_watermark(self, generation: Generation, below: int) -> list[Record]:
        """The records that raise the watermark and make room. None when it is as high already.

        The newest epoch's receipts stay: they tell a later checkpoint that this generation existed.
        """
        if below - 1 <= self.watermark(generation):
            return []
        newest = max((epoch for found, epoch in self._slots if found == generation), default=-1)
        gone = [
            (self._key(generation, epoch, first), None)
            for (found, epoch), firsts in sorted(self._keys.items())
            if found == generation and epoch < min(below, newest)
            for first in sorted(firsts)
        ]
        return [(self._key(generation, _SETTLED), _dumped({"settled": below - 1})), *gone]

    def announcement(self, generation: Generation, transactional_id: str) -> Record:
        """Tells whoever comes later that this id must be taken before anything is published under another."""
        return _dumped([_OF_IDS, self.job, self.sink, generation, transactional_id]), _dumped({})

    def withdrawal(self, generation: Generation, transactional_id: str) -> Record:
        """The id was taken from whoever had it; who takes it again has to announce it again."""
        return self.announcement(generation, transactional_id)[0], None

    def drop_settled(self, job: JobIdentity, below: int) -> None:
        """Forget what `raised_watermark` has removed."""
        newest = max((epoch for found, epoch in self._slots if found == job.generation), default=-1)
        for known in [*self._slots]:
            if known[0] == job.generation and known[1] < min(below, newest):
                del self._slots[known]
                self._keys.pop(known, None)

    def _key(self, generation: Generation, *rest: int | str) -> bytes:
        return _dumped([_VERSION, self.job, self.sink, generation, *rest])


def _begins(*parts: str) -> bytes:
    return _dumped(parts)[:-1] + b","


def _dumped(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _parsed(key: bytes) -> list[Any] | None:
    """The key of one of our records, or None."""
    try:
        found = json.loads(key)
    except ValueError:
        return None
    return found if isinstance(found, list) and len(found) in (5, 6) else None


def _parsed_body(key: bytes, value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError as error:
        raise _damaged(key) from error
    if not isinstance(found, dict):
        raise _damaged(key)
    return found


def _damaged(key: bytes) -> DamagedFile:
    return DamagedFile(
        f"the receipt {key.decode(errors='replace')} cannot be read",
        hint="something else wrote it; without it nobody can say whether its rows are in",
    )
