"""The receipts in Redis: one hash for each job and sink, and the pure reading of what stands in it.

Fields are `<generation>/<epoch>/<slot>`, values `<fingerprint> <rows> <state> <time>`. The state is `in`, or `part`
when only so many rows of the slot are in, or `torn` (see `scripts`). `<generation>/settled` is the watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onceward.connections.redis import RedisConnection, tags
from onceward.contracts import Receipt, SlotValues
from onceward.errors import OutputLost
from onceward.identity import Fingerprint, Generation, JobName, SinkName
from onceward.sinks.receipts import is_in
from onceward.sinks.redis.scripts import RAISE_WATERMARK

if TYPE_CHECKING:
    import redis

ALL = 1 << 62
"""As many rows as any slot has: it is in."""


def key_of(prefix: str, job: str, sink: str) -> str:
    """The key of the receipts of a job and sink: readable, and never that of another."""
    return f"{prefix}:receipts:{quote(job, safe='')}:{quote(sink, safe='')}"


@dataclass(frozen=True, slots=True)
class Scope:
    """Where the receipts of one epoch stand."""

    key: str
    generation: Generation
    epoch: int

    def field(self, slot: int) -> str:
        """The field of one slot."""
        return f"{self.generation}/{self.epoch}/{slot}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One receipt."""

    generation: Generation
    epoch: int
    slot: int
    fingerprint: Fingerprint
    rows: int
    state: str

    @property
    def is_in(self) -> bool:
        """Whether all rows of the slot are in."""
        return self.state == "in"

    @classmethod
    def parse(cls, field: bytes, value: bytes) -> Entry | None:
        """The receipt, or None for the watermark."""
        generation, *numbers = field.decode().split("/")
        if len(numbers) != 2:
            return None
        fingerprint, rows, state = value.decode().split(" ")[:3]
        slot, epoch = int(numbers[1]), int(numbers[0])
        return cls(Generation(generation), epoch, slot, Fingerprint(fingerprint), int(rows), state)


def entries(client: redis.Redis, key: str) -> Iterator[Entry]:
    """Every receipt under this key."""
    found: Any = client.hscan_iter(key, count=1000)
    read = {field: Entry.parse(field, value) for field, value in found}
    yield from (entry for entry in read.values() if entry is not None)


def all_receipts(connection: RedisConnection, key: str, job: JobName, sink: SinkName) -> list[Receipt]:
    """Every receipt under this key, as the protocol knows it: a slot of which only a part is in has one too."""
    return [
        Receipt(job, entry.generation, sink, entry.epoch, entry.slot, entry.fingerprint, entry.is_in)
        for entry in entries(connection.client(key), key)
    ]


def rows_in(client: redis.Redis, slots: Sequence[SlotValues], scope: Scope) -> list[int]:
    """How many rows of each slot the target has; the script looks again before it writes."""
    fields = [scope.field(values.slot) for values in slots]
    watermark, *found = _read(client, scope, fields)
    rows = []
    for values, field, value in zip(slots, fields, found, strict=True):
        entry = None if value is None else Entry.parse(field.encode(), value)
        proofs = [] if entry is None else [entry.fingerprint]
        if values.receipt is None or not is_in(values.receipt, proofs, settled=_number(watermark)):
            rows.append(0)
        elif entry is None or entry.is_in:
            rows.append(ALL)
        else:
            refuse_torn(entry.state, slot=entry.slot, epoch=scope.epoch)
            rows.append(entry.rows)
    return rows


def scope_of_group(scope: Scope, hash_slot: int) -> Scope:
    """In a cluster, where the receipts of the rows in one hash slot stand: in that hash slot."""
    return Scope(f"{scope.key}:{{{tags()[hash_slot]}}}", scope.generation, scope.epoch)


def rows_of_group(connection: RedisConnection, scope: Scope, values: SlotValues, hash_slot: int) -> int:
    """How many rows of a slot's group are in, by the group's own receipt."""
    (rows,) = rows_in(connection.client_of(hash_slot), [values], scope_of_group(scope, hash_slot))
    return rows


def _read(client: redis.Redis, scope: Scope, fields: Sequence[str]) -> list[bytes | None]:
    found: Any = client.hmget(scope.key, [f"{scope.generation}/settled", *fields])
    return list(found)


def refuse_torn(state: str, *, slot: int, epoch: int) -> None:
    """Raise where a script broke off: nobody can say which rows of the slot are in."""
    if state == "torn":
        raise OutputLost(
            f"Redis broke off in the middle of a script: some rows of slot {slot} are in, and nobody can say which",
            hint="its log says why; compare the keys with the rows that are still staged, then set the receipt by hand "
            '(the page "Redis", "Troubleshooting")',
            epoch=epoch,
        )


def _number(watermark: bytes | None) -> int:
    return -1 if watermark is None else int(watermark)


def forget_below(connection: RedisConnection, key: str, generation: Generation, below: int) -> None:
    """See `RedisSink.forget`."""
    client = connection.client(key)
    connection.run(client, RAISE_WATERMARK, key, generation, below - 1)
    ours = [entry for entry in entries(client, key) if entry.generation == generation]
    newest = max((entry.epoch for entry in ours), default=-1)
    old = [f"{generation}/{entry.epoch}/{entry.slot}" for entry in ours if entry.epoch < min(below, newest)]
    for start in range(0, len(old), 1000):
        client.hdel(key, *old[start : start + 1000])
