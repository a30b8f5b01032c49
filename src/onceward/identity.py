"""Who wrote what: the names that every other part agrees on.

Stands before everything else in *source → stage → decide → publish → settle → recover*: a transaction in a target, a
receipt, a segment and a manifest are all found again by the names made here, and by nothing else.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NewType, Self

from onceward.errors import ConfigurationError

JobName = NewType("JobName", str)
Generation = NewType("Generation", str)
SinkName = NewType("SinkName", str)
RunId = NewType("RunId", str)
Fingerprint = NewType("Fingerprint", str)

# Lower case and digits only: every target (file names, SQL literals, XA ids) takes them without quoting, and none
# folds two of them into one.
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME = re.compile(r"[^\x00-\x1f\x7f/\\]{1,200}")


def _token(bits: bytes, length: int) -> str:
    """The first `length` characters of `bits` in our alphabet (five bits a character)."""
    number = int.from_bytes(bits, "big") >> (len(bits) * 8 - length * 5)
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range((length - 1) * 5, -5, -5))


@lru_cache(maxsize=1024)
def digest(text: str, length: int) -> str:
    """A stable short name for `text`."""
    return _token(hashlib.sha256(text.encode()).digest(), length)


def new_generation() -> Generation:
    """A name for one life of a checkpoint directory."""
    return Generation(_token(secrets.token_bytes(8), 8))


def new_run() -> RunId:
    """A name for one life of a driver."""
    return RunId(_token(secrets.token_bytes(8), 6))


def fingerprint_of(barrier: bytes) -> Fingerprint:
    """Digest of an epoch's offset-log entry: two epochs N with one fingerprint cover the same source rows."""
    return Fingerprint(_token(hashlib.sha256(barrier).digest(), 16))


IMMEDIATE: Final = Fingerprint("straight")
"""Stands for the fingerprint in the names of output that went to the target before its epoch was decided: such output
proves nothing about a decision."""


def can_be_name(name: str) -> bool:
    """Whether a job or a sink can be called so."""
    return _NAME.fullmatch(name) is not None and name == name.strip()


def checked_name(kind: str, name: str) -> str:
    """`name` if it can serve as a job's or sink's name, else a clear refusal."""
    if not can_be_name(name):
        raise ConfigurationError(
            f"{name!r} cannot be the name of a {kind}",
            hint="use 1 to 200 characters without slashes, control characters or blanks at the ends",
        )
    return name


def default_sink_name(kind: str, target: str) -> str:
    """What a sink is called unless its user names it: the kind and the target, without what no name may hold."""
    letters = (letter if letter.isprintable() and letter not in "/\\" else "_" for letter in f"{kind}:{target}")
    return "".join(letters)[:200].strip()


def _base36(number: int) -> str:
    text = ""
    while True:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
        if number == 0:
            return text


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """A job in one generation of its checkpoint: the scope of everything `pending` and `receipts` may touch."""

    name: JobName
    generation: Generation

    @property
    def digest(self) -> str:
        """The job's name as it stands inside transaction names."""
        return job_digest(self.name)


@dataclass(frozen=True, slots=True)
class TransactionName:
    """The full name of one task attempt's transaction; `str()` and `parse` are inverse to each other.

    At most 64 bytes (the limit of MySQL's XA) with epochs, takeovers and task attempts below 36**7, slots below 36**4.
    Fields are delimited and have no delimiter inside, so one job's name is never a prefix of another's.
    """

    job: str
    generation: Generation
    sink: str
    epoch: int
    takeover: int
    slot: int
    attempt: int
    run: RunId

    _SHAPE = re.compile(
        r"ow1_([a-z2-7]{8})_([a-z2-7]{8})_([a-z2-7]{6})_([0-9a-z]{1,7})_([0-9a-z]{1,7})_([0-9a-z]{1,4})_"
        r"([0-9a-z]{1,7})_([a-z2-7]{6})"
    )

    @classmethod
    def of(
        cls, job: JobIdentity, sink: SinkName, *, epoch: int, takeover: int, slot: int, attempt: int, run: RunId
    ) -> Self:
        """The name for this attempt; `sink` is folded into a digest that always fits."""
        return cls(job.digest, job.generation, sink_digest(sink), epoch, takeover, slot, attempt, run)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The name that `text` spells, or None when it is not one of ours."""
        match = cls._SHAPE.fullmatch(text)
        if match is None:
            return None
        job, generation, sink, epoch, takeover, slot, attempt, run = match.groups()
        numbers = (int(epoch, 36), int(takeover, 36), int(slot, 36), int(attempt, 36))
        name = cls(job, Generation(generation), sink, *numbers, RunId(run))
        return name if str(name) == text else None

    def __str__(self) -> str:
        """As it stands in the target."""
        numbers = "_".join(_base36(n) for n in (self.epoch, self.takeover, self.slot, self.attempt))
        return f"ow1_{self.job}_{self.generation}_{self.sink}_{numbers}_{self.run}"

    def belongs_to(self, job: JobIdentity, sink: SinkName) -> bool:
        """Whether this job, in this very generation, made it for this sink: the scope of `pending`."""
        return self.is_of(job, sink) and self.generation == job.generation

    def is_of(self, job: JobIdentity, sink: SinkName) -> bool:
        """Whether a job of this name made it for this sink, in whatever generation: the scope of `receipts`."""
        return (self.job, self.sink) == (job.digest, sink_digest(sink))

    def is_of_job(self, name: JobName) -> bool:
        """Whether a job of this name made it, in whatever generation and for whatever sink."""
        return self.job == job_digest(name)


def job_digest(name: JobName) -> str:
    """A job's name as it stands inside transaction names."""
    return digest(name, 8)


def sink_digest(sink: SinkName) -> str:
    """A sink's name as it stands inside transaction names."""
    return digest(sink, 6)
