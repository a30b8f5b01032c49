"""The identity of a checkpoint: whose it is, in which generation, and which directory it was made in."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from onceward.contracts import Guarantee, Storage
from onceward.errors import DamagedFile
from onceward.identity import Generation, JobIdentity, JobName, SinkName
from onceward.journal.sealed import seal, unseal

_NAME = re.compile(r"identity(?:\.([0-9]+))?\.json")
FIRST: Final = 0


@dataclass(frozen=True, slots=True)
class Restored:
    """That the checkpoint was made from a savepoint of `generation` at `epoch`; `origin` is where that one was.

    `ancestors` are that generation and those which it was restored from in turn, each with the newest epoch of it that
    any target may have. `accepted` is what single sinks had beyond that when a person accepted it. Any of the ancestors
    may go on at any time. `is_begun` is False until the first start.
    """

    generation: Generation
    epoch: int
    savepoint: str
    origin: str = ""
    ancestors: Mapping[Generation, int] = field(default_factory=dict)
    is_begun: bool = False
    accepted: Mapping[Generation, Mapping[SinkName, int]] = field(default_factory=dict)

    def reached(self) -> dict[Generation, int]:
        """The ancestors as a savepoint has them, each with the newest epoch of it that was accepted in any sink."""
        return {one: max(epoch, *self.accepted.get(one, {}).values(), -1) for one, epoch in self.ancestors.items()}

    def accepted_of(self, generation: Generation, sink: SinkName) -> int:
        """Up to which epoch a sink may have output of this generation."""
        return max(self.ancestors.get(generation, self.epoch), self.accepted.get(generation, {}).get(sink, -1))


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """One record; a later one (an accepted copy, rollback or fresh start) supersedes it.

    `known` are other generations whose output in the target was accepted. `adopted` is the last epoch that was decided
    before onceward came to this checkpoint. `directory_id` names the directory itself, so that a copy is noticed.

    `query` is Spark's id of the query whose logs stand beside it. `guarantee` holds from epoch `since` on; the one in
    flight below that is finished as it was begun, `before`. Records of version 1 have none of these.
    `restored` came with version 3, what it accepted of single sinks with version 4.
    """

    number: int
    job: JobName
    generation: Generation
    known: tuple[Generation, ...]
    adopted: int
    directory_id: str
    query: str | None = None
    guarantee: Guarantee | None = None
    since: int = 0
    before: Guarantee | None = None
    restored: Restored | None = None

    def guarantee_of(self, epoch: int) -> Guarantee | None:
        """Under which guarantee this epoch was begun, or is to be; None when nobody has written it down."""
        return self.guarantee if epoch >= self.since else self.before

    @property
    def identity(self) -> JobIdentity:
        """The job in this generation."""
        return JobIdentity(self.job, self.generation)


class IdentityFile:
    """`identity.json`, then `identity.1.json` and so on: each created if absent, then read again; the last counts."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self) -> IdentityRecord | None:
        """The record that counts, None in a fresh checkpoint."""
        numbers = self._numbers()
        return self._record(numbers[-1]) if numbers else None

    def history(self) -> tuple[IdentityRecord, ...]:
        """Every record that can be read, the oldest first."""
        found = []
        for number in self._numbers():
            with contextlib.suppress(DamagedFile):
                found.append(self._record(number))
        return tuple(found)

    def next_number(self) -> int:
        """One above every record there is, damaged ones too."""
        return max(self._numbers(), default=-1) + 1

    def create(self, record: IdentityRecord) -> IdentityRecord:
        """Write it if its number is free; what stands under that number afterwards, ours or another driver's."""
        self._storage.create(_path(record.number), seal("identity", _document(record)))
        return self._record(record.number)

    def _numbers(self) -> list[int]:
        return sorted(int(match[1] or 0) for name in self._storage.names("") if (match := _NAME.fullmatch(name)))

    def _record(self, number: int) -> IdentityRecord:
        path = _path(number)
        data = self._storage.read(path)
        if data is None:
            raise DamagedFile(f"{path} vanished while it was read", hint="does someone else delete this checkpoint?")
        document = unseal("identity", data, path=path)
        try:
            return IdentityRecord(
                number=int(document["number"]),
                job=JobName(document["job"]),
                generation=Generation(document["generation"]),
                known=tuple(Generation(g) for g in document["known"]),
                adopted=int(document["adopted"]),
                directory_id=str(document["place"]),
                query=None if (query := document.get("query")) is None else str(query),
                **_promise(document.get("guarantee")),
                restored=_restored(document.get("restored")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedFile(f"{path} is not an identity: {error!r}", hint="restore it from a backup") from error


def _document(record: IdentityRecord) -> dict[str, Any]:
    guarantee, before = (None if one is None else one.value for one in (record.guarantee, record.before))
    return {
        "number": record.number,
        "job": record.job,
        "generation": record.generation,
        "known": list(record.known),
        "adopted": record.adopted,
        "place": record.directory_id,
        "query": record.query,
        "guarantee": None if guarantee is None else {"is": guarantee, "since": record.since, "before": before},
        "restored": None if record.restored is None else asdict(record.restored),
    }


def _promise(stored: Any) -> dict[str, Any]:
    """What a record says about the guarantee; nothing before version 2."""
    if stored is None:
        return {}
    before = stored["before"]
    return {
        "guarantee": Guarantee(stored["is"]),
        "since": int(stored["since"]),
        "before": None if before is None else Guarantee(before),
    }


def _restored(stored: Any) -> Restored | None:
    """From which savepoint it was made; None before version 3."""
    if stored is None:
        return None
    return Restored(
        Generation(stored["generation"]),
        int(stored["epoch"]),
        str(stored["savepoint"]),
        str(stored["origin"]),
        {Generation(one): int(epoch) for one, epoch in stored["ancestors"].items()},
        bool(stored["is_begun"]),
        {
            Generation(one): {SinkName(sink): int(epoch) for sink, epoch in sinks.items()}
            for one, sinks in stored.get("accepted", {}).items()
        },
    )


def _path(number: int) -> str:
    return f"identity.{number}.json" if number else "identity.json"
