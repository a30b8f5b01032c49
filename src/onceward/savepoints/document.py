"""What a savepoint says of itself: `savepoint.json`, sealed, written last. A directory without it is no savepoint.

It may come from anywhere. So nothing in it is believed before its shape is checked, and a name in it never leads out of
the savepoint, nor to a file that a restore does not expect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from onceward.contracts import Guarantee
from onceward.errors import DamagedFile, NewerFormat
from onceward.identity import Fingerprint, Generation, JobName, SinkName, checked_name
from onceward.journal import Restored, SinkTotal, seal, unseal
from onceward.operators import Topology

FILE: Final = "savepoint.json"
CONTENT: Final = "files"
"""The folder with Spark's files, each under the path that it has in a checkpoint."""
KIND: Final = "savepoint"

_PATH = re.compile(r"(?:offsets|commits)/[0-9]{1,18}|(?:sources|state)(?:/[A-Za-z0-9_=+%@,~ -][^/\\\0\n]{0,200}){1,8}")
_CRC = re.compile(r"[0-9a-f]{8}")
_ID = re.compile(r"[a-z2-7]{8}")
_MOST_BYTES: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class SavedFile:
    """One file: its size, and the CRC-32 of its bytes."""

    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Parent:
    """Of a checkpoint that was itself restored: from which savepoint, of which generation, at which epoch."""

    generation: Generation
    epoch: int
    savepoint: str


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A job at the end of one epoch, decided and published.

    `known` are the generations whose output its targets had; `ancestors` those of a checkpoint that was itself
    restored. `barrier` is Spark's entry of the epoch: where each source ends. `sinks` is what each got in that epoch.
    `topology` describes the sources and the operators. `origin` is where the checkpoint was, for people.
    """

    id: str
    job: JobName
    generation: Generation
    known: tuple[Generation, ...]
    epoch: int
    fingerprint: Fingerprint
    taken_at: datetime
    onceward: str
    spark: str
    origin: str
    barrier: str
    query: str | None = None
    guarantee: Guarantee | None = None
    parent: Parent | None = None
    ancestors: Mapping[Generation, int] = field(default_factory=dict)
    sinks: Mapping[SinkName, SinkTotal] = field(default_factory=dict)
    topology: Topology = field(default_factory=Topology)
    files: Mapping[str, SavedFile] = field(default_factory=dict)

    @property
    def restored(self) -> Restored:
        """What a checkpoint that is made from it writes down."""
        ancestors = {**self.ancestors, self.generation: self.epoch}
        return Restored(self.generation, self.epoch, self.id, self.origin, ancestors)

    @property
    def size(self) -> int:
        """Of all its files."""
        return sum(one.size for one in self.files.values())

    def sealed(self) -> bytes:
        """The bytes of `savepoint.json`."""
        parent = self.parent
        return seal(
            KIND,
            {
                "id": self.id,
                "job": self.job,
                "generation": self.generation,
                "known": list(self.known),
                "epoch": self.epoch,
                "fingerprint": self.fingerprint,
                "taken_at": self.taken_at.isoformat(),
                "onceward": self.onceward,
                "spark": self.spark,
                "origin": self.origin,
                "query": self.query,
                "guarantee": None if self.guarantee is None else self.guarantee.value,
                "parent": None
                if parent is None
                else {"generation": parent.generation, "epoch": parent.epoch, "savepoint": parent.savepoint},
                "ancestors": dict(self.ancestors),
                "sinks": {name: total.to_json() for name, total in self.sinks.items()},
                "barrier": self.barrier,
                "topology": self.topology.as_json(),
                "files": {path: [one.size, f"{one.crc:08x}"] for path, one in sorted(self.files.items())},
            },
        )

    @classmethod
    def unsealed(cls, data: bytes, *, path: str) -> Self:
        """What the bytes say; `DamagedFile` for anything that no savepoint of ours can be."""
        try:
            document = unseal(KIND, data, path=path)
            parent, guarantee, query = document["parent"], document["guarantee"], document["query"]
            found = cls(
                id=_matched(_ID, document["id"]),
                job=JobName(checked_name("job", _text(document["job"]))),
                generation=_generation(document["generation"]),
                known=tuple(_generation(one) for one in document["known"]),
                epoch=_number(document["epoch"], most=1 << 53),
                fingerprint=Fingerprint(_text(document["fingerprint"])),
                taken_at=datetime.fromisoformat(document["taken_at"]),
                onceward=_text(document["onceward"]),
                spark=_text(document["spark"]),
                origin=_text(document["origin"]),
                barrier=_text(document["barrier"]),
                query=None if query is None else _text(query),
                guarantee=None if guarantee is None else Guarantee(guarantee),
                parent=None if parent is None else _parent(parent),
                ancestors={_generation(one): _number(n, most=1 << 53) for one, n in document["ancestors"].items()},
                sinks={SinkName(_text(name)): SinkTotal.from_json(one) for name, one in document["sinks"].items()},
                topology=Topology.from_json(document["topology"]),
                files={_path(name): _saved(one) for name, one in document["files"].items()},
            )
        except NewerFormat:
            raise
        except DamagedFile as error:
            raise DamagedFile(error.message, hint=_HINT) from None
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise DamagedFile(f"{path} is not that of a savepoint: {error!r}", hint=_HINT) from error
        except Exception as error:
            raise DamagedFile(f"{path} is not that of a savepoint: {error}", hint=_HINT) from error
        _check_whole(found, path)
        return found


_HINT: Final = "copy the savepoint again from where it was taken, or use another one; nothing was changed"


def _check_whole(found: Savepoint, path: str) -> None:
    """The entries without which nothing resumes, and no file of another epoch's log."""
    wanted = {f"offsets/{n}" for n in (found.epoch - 1, found.epoch) if n >= 0} | {f"commits/{found.epoch}"}
    listed = {name for name in found.files if name.startswith(("offsets/", "commits/"))}
    if listed != wanted:
        raise DamagedFile(f"{path} does not list the log entries of epoch {found.epoch}, and no others", hint=_HINT)
    folders = {parent for name in found.files for parent in _parents(name)}
    if both := folders & set(found.files):
        raise DamagedFile(f"{path} lists {sorted(both)[0]} as a file and as a folder", hint=_HINT)


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _path(name: object) -> str:
    """A path that a file of Spark's has in a checkpoint: relative, plain, no step upwards, nothing hidden."""
    text = _matched(_PATH, name)
    if any(part in (".", "..") for part in text.split("/")) or not text.isprintable():
        raise ValueError(f"{text!r} is not the name of a file of Spark's")
    return text


def _saved(one: object) -> SavedFile:
    if not isinstance(one, list) or len(one) != 2:
        raise TypeError("a file has a size and a checksum")
    return SavedFile(_number(one[0], most=_MOST_BYTES), int(_matched(_CRC, one[1]), 16))


def _parent(one: Mapping[str, Any]) -> Parent:
    epoch = _number(one["epoch"], most=1 << 53)
    return Parent(_generation(one["generation"]), epoch, _matched(_ID, one["savepoint"]))


def _generation(one: object) -> Generation:
    return Generation(_matched(_ID, one))


def _matched(shape: re.Pattern[str], one: object) -> str:
    if not isinstance(one, str) or shape.fullmatch(one) is None:
        raise ValueError(f"{str(one)[:80]!r} does not belong there")
    return one


def _text(one: object) -> str:
    if not isinstance(one, str):
        raise TypeError(f"a text is a {type(one).__name__}")
    return one


def _number(one: object, *, most: int) -> int:
    if type(one) is not int or not 0 <= one <= most:
        raise ValueError(f"{str(one)[:40]!r} does not belong there")
    return one
