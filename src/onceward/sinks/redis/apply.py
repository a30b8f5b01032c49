"""*Publish*: call the script for each part of an epoch, in order, and understand its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from onceward.connections.redis import RedisConnection
from onceward.contracts import SlotValues
from onceward.errors import RowsRejected, TargetChanged
from onceward.sinks.receipts import rolled_back
from onceward.sinks.redis import commands, receipts
from onceward.sinks.redis.cluster import Group, groups
from onceward.sinks.redis.facts import TargetFacts
from onceward.sinks.redis.options import Options
from onceward.sinks.redis.packing import packed_texts
from onceward.sinks.redis.parts import Piece, parts, piece_of, pieces
from onceward.sinks.redis.receipts import Scope
from onceward.sinks.redis.scripts import APPLY

if TYPE_CHECKING:
    import redis

_CALLS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Delivery:
    """An epoch on its way to the server or cluster."""

    connection: RedisConnection
    scope: Scope
    options: Options
    facts: TargetFacts
    _looked_at: set[int] = field(default_factory=set)

    def apply(self, slots: Sequence[SlotValues]) -> bool:
        """Part after part. False when someone else was faster or the server forgot: the next call looks anew."""
        return self._to_cluster(slots) if self.connection.is_cluster else self._to_server(slots)

    def try_out(self, values: SlotValues) -> None:
        """Let the script look at rows as if it were to write them; raises what it would raise, and writes nothing."""
        bare = replace(values, receipt=None)
        if not self.connection.is_cluster:
            for part in parts(pieces([bare], [0], self.options), self.options):
                arguments = self._arguments(self.scope, part, is_trial=True)
                self._is_done(self.connection.run(self.connection.seed, APPLY, self.scope.key, *arguments))
            return
        for group in groups(bare, self.options):
            client, own = (
                self.connection.client_of(group.hash_slot),
                receipts.scope_of_group(self.scope, group.hash_slot),
            )
            for piece in group.pieces:
                arguments = self._arguments(own, [piece], in_cluster=True, is_trial=True)
                self._is_done(self.connection.run(client, APPLY, own.key, *arguments))

    def _to_server(self, slots: Sequence[SlotValues]) -> bool:
        seed = self.connection.seed
        already = receipts.rows_in(seed, slots, self.scope)
        missing = [(values, rows) for values, rows in zip(slots, already, strict=True) if rows < receipts.ALL]
        cut = pieces([values for values, _ in missing], [rows for _, rows in missing], self.options)
        return all(self._apply_part(seed, part) for part in parts(cut, self.options))

    def _to_cluster(self, slots: Sequence[SlotValues]) -> bool:
        """Slot after slot, and of each one hash slot after the other; its own receipt stands around them."""
        home = self.connection.client(self.scope.key)
        for values, already in zip(slots, receipts.rows_in(home, slots, self.scope), strict=True):
            if already == receipts.ALL:
                continue
            cut = partial(groups, values, self.options)
            try:
                grouped = list(cut())
            except RowsRejected as error:
                raise RowsRejected(f"slot {values.slot}, {error.message}") from None
            if values.receipt is None:
                self._apply_all(grouped)
                continue
            begun = piece_of(values, first=0, past=0, is_last=False, packed=None)
            ended = piece_of(values, first=0, past=values.rows, is_last=True, packed=None)
            if not self._apply_part(home, [begun]):
                return False
            if not self._apply_all(grouped):
                # Parts of it went in that were cut otherwise: with another max_rows_per_script, or by a second driver.
                rest = cut(rows_in=partial(receipts.rows_of_group, self.connection, self.scope, values))
                if not self._apply_all(list(rest)):
                    return False
            if not self._apply_part(home, [ended]):
                return False
        return True

    def _apply_part(self, client: redis.Redis, part: Sequence[Piece]) -> bool:
        arguments = self._arguments(self.scope, part, looks_at=client)
        return self._is_done(self.connection.run(client, APPLY, self.scope.key, *arguments))

    def _apply_all(self, grouped: Sequence[Group]) -> bool:
        calls = [(group.hash_slot, piece) for group in grouped for piece in group.pieces]
        starts = range(0, len(calls), _CALLS_AT_ONCE)
        return all(self._apply_groups(calls[start : start + _CALLS_AT_ONCE]) for start in starts)

    def _apply_groups(self, calls: Sequence[tuple[int, Piece]]) -> bool:
        """All calls for one server in one go. Those of one hash slot are among them in their order."""
        sent = []
        for hash_slot, piece in calls:
            client, own = self.connection.client_of(hash_slot), receipts.scope_of_group(self.scope, hash_slot)
            sent.append((client, own.key, self._arguments(own, [piece], in_cluster=True, looks_at=client)))
        return all(self._is_done(answer) for answer in self.connection.run_all(APPLY, sent))

    def _arguments(
        self,
        scope: Scope,
        part: Sequence[Piece],
        *,
        in_cluster: bool = False,
        looks_at: redis.Redis | None = None,
        is_trial: bool = False,
    ) -> list[str | int | bytes]:
        packed, layout = [piece.packed for piece in part if piece.packed is not None], self.options.layout
        fractions = any(rows.adds_fractions for rows in packed)
        needed = commands.writing(layout, fractions=fractions, nulls=not all(rows.is_plain for rows in packed))
        # A server's facts are looked at once an epoch, by the first call that writes there.
        looks = looks_at is not None and id(looks_at) not in self._looked_at
        self._looked_at.add(id(looks_at))
        head: list[str | int | bytes] = [
            scope.generation,
            scope.epoch,
            datetime.now(UTC).isoformat(timespec="seconds"),
            layout.kind,
            int(fractions),
            "" if layout.ttl_ms is None else layout.ttl_ms,
            layout.key.literal or "",
            int(in_cluster),
            packed_texts(packed[0].names if packed else ()),
            commands.packed(needed),
            layout.key.prefix or self.scope.key,
            self.facts.argument() if looks else "",
            int(is_trial),
        ]
        return [*head, *(argument for piece in part for argument in piece.arguments())]

    def _is_done(self, answer: Sequence[bytes]) -> bool:
        """Whether the script wrote the part or found it written; raises when it must not be written."""
        epoch = self.scope.epoch
        verdict, *details = (part.decode(errors="backslashreplace") for part in answer)
        match verdict:
            case "applied" | "nothing" | "fine":
                return True
            case "elsewhere":
                return False
            case "refused":
                raise RowsRejected(f"the key {details[0]!r} cannot be written: {details[1]}", epoch=epoch)
            case "forbidden":
                raise TargetChanged(
                    f"this user may no longer run {details[0]}; the key was {details[1]!r}",
                    hint='give the user back its permissions: the page "Redis", "Privileges", has the ACL line',
                    epoch=epoch,
                )
            case "changed":
                self.facts.confirm(details[0], keeps_journal=details[1] == "1", epoch=epoch)
            case "other":
                raise rolled_back(int(details[0]), epoch=epoch)
            case _:
                receipts.refuse_torn(verdict, slot=int(details[0]), epoch=epoch)
        raise AssertionError(f"the script answered {verdict!r}")
