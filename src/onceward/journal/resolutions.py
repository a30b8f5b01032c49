"""What a person has said about an epoch that onceward could not bring to an end by itself: who, when, why, and what.

Each is a write-once file `resolutions/<n>.json`. They stay for good: they are the record of what was done by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final

from onceward.contracts import Storage
from onceward.errors import DamagedFile
from onceward.identity import Fingerprint, Generation, SinkName
from onceward.journal.model import Manifest, SinkEntry
from onceward.journal.sealed import seal, unseal

FOLDER: Final = "resolutions"
_NAME = re.compile(r"([0-9]+)\.json")


class Kind(Enum):
    """What was said."""

    SLOT_IS_IN = "slot-is-in"
    EPOCH_IS_PUBLISHED = "epoch-is-published"
    ACCEPT_LOSS = "accept-loss"
    ABORT_TRANSACTIONS = "abort-transactions"
    IDENTITY = "identity"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True)
class Resolution:
    """One thing that was said.

    `sink` is None when it holds for all of them. `transactions` are the names of what is left out of publishing (or was
    aborted): another computation of the epoch has other names, so that it is never left out by mistake.
    `EPOCH_IS_PUBLISHED` alone goes by the fingerprint, for then the rows are in whoever computes them again.
    `withdraws` is the number of a resolution that no longer holds, be it a damaged one.
    """

    kind: Kind
    generation: Generation
    by: str
    at: datetime
    because: str
    epoch: int | None = None
    sink: SinkName | None = None
    slot: int | None = None
    fingerprint: Fingerprint | None = None
    transactions: tuple[str, ...] = ()
    withdraws: int | None = None
    shown: tuple[str, ...] = ()
    number: int = -1

    def leaves_out(self, manifest: Manifest, sink: SinkName, transaction: str) -> bool:
        """Whether this slot of a manifest is not to be published."""
        if self.generation != manifest.job.generation or self.epoch != manifest.epoch:
            return False
        if self.kind is Kind.EPOCH_IS_PUBLISHED:
            return self.sink in (None, sink) and self.fingerprint in (None, manifest.fingerprint)
        if self.kind in (Kind.SLOT_IS_IN, Kind.ACCEPT_LOSS):
            return self.sink in (None, sink) and transaction in self.transactions
        return False


@dataclass(frozen=True, slots=True)
class Resolved:
    """Every resolution that holds, and what follows from them. Asks no storage."""

    all: tuple[Resolution, ...] = ()

    def without(self, manifest: Manifest) -> Manifest:
        """The manifest as it is to be published: without the slots that a person took out of it."""
        sinks = {name: self._left(manifest, name, entry) for name, entry in manifest.sinks.items()}
        return replace(manifest, sinks=sinks)

    def _left(self, manifest: Manifest, name: SinkName, entry: SinkEntry) -> SinkEntry:
        def is_left_out(transaction: str) -> bool:
            return any(one.leaves_out(manifest, name, transaction) for one in self.all)

        kept = tuple(slot for slot in entry.slots if not is_left_out(slot.transaction))
        return replace(entry, slots=kept)

    def end(
        self, generation: Generation, epoch: int, fingerprint: Fingerprint | None, sinks: Iterable[SinkName]
    ) -> str | None:
        """How an epoch ends of which nobody can say what was staged, if each of its sinks was spoken for; else None."""
        said = [*self._said_of(generation, epoch, fingerprint)]
        if any(one.sink is None for one in said) or ({*sinks} and {*sinks} <= {one.sink for one in said}):
            return "resolved by hand: " + "; ".join(sorted({describe(one) for one in said}))
        return None

    def published(
        self, generation: Generation, epoch: int, fingerprint: Fingerprint | None
    ) -> tuple[bool, frozenset[SinkName]]:
        """Whether a person said that the epoch is in every sink; and in which, of those that were named."""
        kind = Kind.EPOCH_IS_PUBLISHED
        said = [one for one in self._said_of(generation, epoch, fingerprint) if one.kind is kind]
        return any(one.sink is None for one in said), frozenset(one.sink for one in said if one.sink is not None)

    def gives_up(self, transaction: str) -> bool:
        """Whether a person gave up this very transaction."""
        return any(one.kind is Kind.ACCEPT_LOSS and transaction in one.transactions for one in self.all)

    def of_epoch(self, epoch: int) -> tuple[Resolution, ...]:
        """Those that name the epoch."""
        return tuple(one for one in self.all if one.epoch == epoch)

    def _said_of(self, generation: Generation, epoch: int, fingerprint: Fingerprint | None) -> Iterator[Resolution]:
        """A loss that names transactions is that of one computation, and says nothing where no manifest is."""
        for one in self.of_epoch(epoch):
            fits = one.generation == generation and None in (one.fingerprint, fingerprint)
            if not fits and (one.generation, one.fingerprint) != (generation, fingerprint):
                continue
            lost = one.kind is Kind.ACCEPT_LOSS and not one.transactions
            if lost or one.kind is Kind.EPOCH_IS_PUBLISHED:
                yield one


def describe(one: Resolution) -> str:
    """One line for people, without who and when."""
    of_epoch = f"epoch {one.epoch}" + (f" in sink {one.sink!r}" if one.sink is not None else "")
    match one.kind:
        case Kind.SLOT_IS_IN:
            return f"slot {one.slot} of {of_epoch} is in the target"
        case Kind.EPOCH_IS_PUBLISHED:
            return f"{of_epoch} is published"
        case Kind.ACCEPT_LOSS:
            return f"the output of {of_epoch} is given up"
        case Kind.ABORT_TRANSACTIONS:
            return f"{len(one.transactions)} transactions were aborted"
        case Kind.IDENTITY:
            return f"this checkpoint is generation {one.generation}"
        case Kind.WITHDRAW:
            return f"resolution {one.withdraws} is withdrawn"


class Resolutions:
    """The files. The highest number is the newest."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self) -> Resolved:
        """All that hold. `DamagedFile` when one cannot be read and was not withdrawn: it may leave something out."""
        found: dict[int, Resolution] = {}
        damaged: dict[int, DamagedFile] = {}
        for number in self._numbers():
            try:
                found[number] = self._one(number)
            except DamagedFile as error:
                damaged[number] = error
        gone = {one.withdraws for one in found.values()}
        for number, why in damaged.items():
            if number not in gone:
                raise why
        return Resolved(tuple(one for number, one in sorted(found.items()) if number not in gone))

    def history(self) -> tuple[Resolution, ...]:
        """Every one that can be read, those too that were withdrawn, in order."""
        found = []
        for number in self._numbers():
            try:
                found.append(self._one(number))
            except DamagedFile:
                continue
        return tuple(found)

    def create(self, resolution: Resolution) -> Resolution:
        """Record it durably under the next free number."""
        number = max(self._numbers(), default=-1) + 1
        while not self._storage.create(f"{FOLDER}/{number}.json", seal("resolution", _document(resolution, number))):
            number += 1
        return replace(resolution, number=number)

    def has(self, number: int) -> bool:
        """Whether there is one of this number, damaged or not."""
        return number in self._numbers()

    def _numbers(self) -> list[int]:
        return sorted(int(match[1]) for name in self._storage.names(FOLDER) if (match := _NAME.fullmatch(name)))

    def _one(self, number: int) -> Resolution:
        path = f"{FOLDER}/{number}.json"
        hint = (
            f"restore it from a backup; or `onceward resolve withdraw FILE {number}`, and say again what it said: "
            "it may have kept rows from being published twice"
        )
        try:
            document = unseal("resolution", self._storage.read(path) or b"", path=path)
            return _resolution(document, number)
        except DamagedFile as error:
            raise DamagedFile(error.message, hint=hint) from error
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFile(f"{path} is not a resolution: {error!r}", hint=hint) from error


def _document(one: Resolution, number: int) -> dict[str, object]:
    return {
        "number": number,
        "kind": one.kind.value,
        "generation": one.generation,
        "by": one.by,
        "at": one.at.isoformat(),
        "because": one.because,
        "epoch": one.epoch,
        "sink": one.sink,
        "slot": one.slot,
        "fingerprint": one.fingerprint,
        "transactions": list(one.transactions),
        "withdraws": one.withdraws,
        "shown": list(one.shown),
    }


def _resolution(document: Mapping[str, object], number: int) -> Resolution:
    if document["number"] != number:
        raise ValueError(f"it is number {document['number']}")
    epoch, slot, withdraws = document["epoch"], document["slot"], document["withdraws"]
    sink, fingerprint = document["sink"], document["fingerprint"]
    return Resolution(
        kind=Kind(document["kind"]),
        generation=Generation(str(document["generation"])),
        by=str(document["by"]),
        at=datetime.fromisoformat(str(document["at"])),
        because=str(document["because"]),
        epoch=None if epoch is None else int(str(epoch)),
        sink=None if sink is None else SinkName(str(sink)),
        slot=None if slot is None else int(str(slot)),
        fingerprint=None if fingerprint is None else Fingerprint(str(fingerprint)),
        transactions=tuple(map(str, _list(document["transactions"]))),
        withdraws=None if withdraws is None else int(str(withdraws)),
        shown=tuple(map(str, _list(document["shown"]))),
        number=number,
    )


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value
