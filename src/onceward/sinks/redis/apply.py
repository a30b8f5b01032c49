"""*Publish*: call the script for each part of an epoch, in order, and understand its answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from onceward.connections.redis import Way
from onceward.contracts import SlotValues
from onceward.errors import RowsRejected
from onceward.sinks.redis import ledger
from onceward.sinks.redis.cluster import Group, groups
from onceward.sinks.redis.layout import Layout
from onceward.sinks.redis.ledger import Scope
from onceward.sinks.redis.packing import packed_texts
from onceward.sinks.redis.parts import Piece, parts, piece_of, pieces
from onceward.sinks.redis.scripts import APPLY

if TYPE_CHECKING:
    import redis

_CALLS_AT_ONCE = 256


def apply_to_server(
    way: Way,
    slots: Sequence[SlotValues],
    scope: Scope,
    layout: Layout,
    *,
    rows_at_once: int | None,
    skips_null_keys: bool,
) -> bool:
    """Part after part. False when someone else was faster or the server forgot: the next call looks anew."""
    already = ledger.rows_in(way.seed, slots, scope)
    missing = [(values, rows) for values, rows in zip(slots, already, strict=True) if rows < ledger.ALL]
    cut = pieces(
        [values for values, _ in missing],
        [rows for _, rows in missing],
        layout,
        rows_at_once=rows_at_once,
        skips=skips_null_keys,
    )
    for part in parts(cut, rows_at_once=rows_at_once):
        if not _is_done(way.run(way.seed, APPLY, scope.key, *_arguments(scope, layout, part)), scope.epoch):
            return False
    return True


def apply_to_cluster(
    way: Way,
    slots: Sequence[SlotValues],
    scope: Scope,
    layout: Layout,
    *,
    rows_at_once: int | None,
    skips_null_keys: bool,
) -> bool:
    """Slot after slot, and of each one hash slot after the other; its own receipt stands around them."""
    home = way.client(scope.key)
    for values, already in zip(slots, ledger.rows_in(home, slots, scope), strict=True):
        if already == ledger.ALL:
            continue
        cut = partial(groups, values, layout, rows_at_once=rows_at_once, skips=skips_null_keys)
        try:
            grouped = list(cut())
        except RowsRejected as error:
            raise RowsRejected(f"slot {values.slot}, {error.message}") from None
        if values.receipt is None:
            _apply_all(way, scope, layout, grouped)
            continue
        begun = piece_of(values, first=0, past=0, is_last=False, packed=None)
        ended = piece_of(values, first=0, past=values.rows, is_last=True, packed=None)
        if not _apply_one(way, home, scope, layout, begun):
            return False
        if not _apply_all(way, scope, layout, grouped):
            # Parts of it went in that were cut otherwise: with another `rows_at_once`, or by a second driver just now.
            rest = cut(rows_in=partial(ledger.rows_of_group, way, scope, values.slot))
            if not _apply_all(way, scope, layout, list(rest)):
                return False
        if not _apply_one(way, home, scope, layout, ended):
            return False
    return True


def _apply_all(way: Way, scope: Scope, layout: Layout, grouped: Sequence[Group]) -> bool:
    calls = [(group.hash_slot, piece) for group in grouped for piece in group.pieces]
    starts = range(0, len(calls), _CALLS_AT_ONCE)
    return all(_apply_groups(way, scope, layout, calls[start : start + _CALLS_AT_ONCE]) for start in starts)


def _apply_one(way: Way, client: redis.Redis, scope: Scope, layout: Layout, piece: Piece) -> bool:
    return _is_done(way.run(client, APPLY, scope.key, *_arguments(scope, layout, [piece])), scope.epoch)


def _apply_groups(way: Way, scope: Scope, layout: Layout, calls: Sequence[tuple[int, Piece]]) -> bool:
    """All calls for one server in one go. Those of one hash slot are among them in their order."""
    pipelines: dict[int, redis.client.Pipeline] = {}
    for hash_slot, piece in calls:
        client = way.client_of(hash_slot)
        pipeline = pipelines.setdefault(id(client), client.pipeline(transaction=False))
        own = ledger.scope_of_group(scope, hash_slot)
        arguments: list[Any] = [own.key, *_arguments(own, layout, [piece], in_cluster=True)]
        pipeline.evalsha(way.script(client, APPLY), 1, *arguments)
    answers = [answer for pipeline in pipelines.values() for answer in pipeline.execute()]
    return all(_is_done(answer, scope.epoch) for answer in answers)


def _arguments(
    scope: Scope, layout: Layout, part: Sequence[Piece], *, in_cluster: bool = False
) -> list[str | int | bytes]:
    packed = next((piece.packed for piece in part if piece.packed is not None), None)
    head: list[str | int | bytes] = [
        scope.generation,
        scope.epoch,
        datetime.now(UTC).isoformat(timespec="seconds"),
        layout.kind,
        int(packed is not None and packed.adds_fractions),
        "" if layout.ttl_ms is None else layout.ttl_ms,
        layout.key.literal or "",
        int(in_cluster),
        packed_texts(packed.names if packed is not None else ()),
    ]
    return [*head, *(argument for piece in part for argument in piece.arguments())]


def _is_done(answer: Sequence[bytes], epoch: int) -> bool:
    """Whether the script wrote the part or found it written; raises when it must not be written."""
    verdict, *details = (part.decode(errors="backslashreplace") for part in answer)
    match verdict:
        case "applied" | "nothing":
            return True
        case "elsewhere":
            return False
        case "refused":
            raise RowsRejected(f"the key {details[0]!r} cannot be written: {details[1]}", epoch=epoch)
        case _:
            ledger.refuse(int(details[0]), epoch, is_other=verdict == "other", state=verdict)
            raise AssertionError(f"the script answered {verdict!r}")
