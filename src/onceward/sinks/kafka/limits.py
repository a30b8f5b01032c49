"""What a topic takes, and which records of an epoch it does not: known before any of them is sent."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from onceward.sinks.kafka.encode import Header, Records

DEFAULT_MAX_BYTES = 1_000_000
# A batch's own header, and the most that lengths, attributes and times take in a record.
_FRAME_BYTES = 61 + 40
_HEADER_FRAME_BYTES = 10
_FAR_AHEAD_MS = 1 << 62
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_name(topic: str) -> bool:
    """Whether there can be a topic of this name."""
    return _NAME.fullmatch(topic) is not None and topic not in (".", "..")


@dataclass(frozen=True, slots=True)
class Topic:
    """`max_bytes` is the largest batch that the brokers take; None where they did not tell.

    Times of records may lie so many milliseconds before and after now; `own_times`: the brokers put theirs in their
    place. `closed` says why no row may go there.
    """

    name: str
    partitions: int
    max_bytes: int | None = None
    wants_keys: bool = False
    before_ms: int | None = None
    after_ms: int | None = None
    own_times: bool = False
    closed: str | None = None

    @classmethod
    def described(cls, name: str, partitions: int, config: Mapping[str, str], *, is_internal: bool) -> Topic:
        """From what the brokers tell of it."""
        own_times = config.get("message.timestamp.type") == "LogAppendTime"
        return cls(
            name,
            partitions,
            _number(config.get("max.message.bytes")),
            wants_keys="compact" in config.get("cleanup.policy", ""),
            before_ms=None if own_times else _number(config.get("message.timestamp.before.max.ms")),
            after_ms=None if own_times else _number(config.get("message.timestamp.after.max.ms")),
            own_times=own_times,
            closed=f"topic {name!r} is Kafka's own" if is_internal else None,
        )

    @property
    def record_bytes(self) -> int:
        """How large key, value and headers of a record may be together. Counted before compression."""
        return (DEFAULT_MAX_BYTES if self.max_bytes is None else self.max_bytes) - _FRAME_BYTES


class Misfit(NamedTuple):
    """A record that its topic will not take: its place among its like, and why."""

    row: int
    why: str


TopicOf = Callable[[str], Topic | None]
"""Looks a topic up; None when there is none."""


def misfits(records: Records, topic_of: TopicOf) -> Iterator[Misfit]:
    """Each of these records that its topic will not take."""
    if not len(records):
        return
    names = records.names()
    if len(names) == 1:
        (name,) = names
        yield from _of_topic(records, name, topic_of, None)
        return
    for name in names:
        rows = pc.is_null(records.topics) if name is None else pc.fill_null(pc.equal(records.topics, name), False)
        yield from _of_topic(records, name, topic_of, rows)


def _of_topic(records: Records, name: str | None, topic_of: TopicOf, rows: pa.Array | None) -> Iterator[Misfit]:
    topic = topic_of(name) if name is not None and is_name(name) else None
    if topic is None or topic.closed:
        everything = pa.array([True] * len(records)) if rows is None else rows
        yield from _named(everything, (topic and topic.closed) or _no_topic(name))
        return
    if records.garbled is not None:
        yield from _named(_both(records.garbled, rows), "a text in it is not UTF-8, so that it has no form in JSON")
    sizes = _sizes(records)
    # Most often none is too large, and one number shows it.
    if pc.max(sizes).as_py() > topic.record_bytes:
        for row, _ in _named(_both(pc.greater(sizes, topic.record_bytes), rows), ""):
            yield Misfit(row, f"it has {sizes[row]} bytes, and topic {name!r} takes {topic.record_bytes}")
    if records.partitions is not None:
        numbers = records.partitions
        outside = pc.fill_null(pc.or_(pc.greater_equal(numbers, topic.partitions), pc.less(numbers, 0)), False)
        for row, _ in _named(_both(outside, rows), ""):
            yield Misfit(row, f"it is for partition {numbers[row]}, and topic {name!r} has {topic.partitions}")
    if topic.wants_keys:
        keyless = pa.array([True] * len(records)) if records.keys is None else pc.is_null(records.keys)
        yield from _named(_both(keyless, rows), f"it has no key, and topic {name!r} is compacted")
    if records.timestamps is not None and topic.own_times:
        given = pc.is_valid(records.timestamps)
        yield from _named(_both(given, rows), f"it has a time, and topic {name!r} puts its own in its place")
    elif records.timestamps is not None:
        for row, _ in _named(_both(_untimely(records.timestamps, topic), rows), ""):
            at = records.timestamps[row]
            yield Misfit(row, f"its time is {at} ms since 1970, which topic {name!r} does not take")
    if records.headers is not None:
        for index, headers in enumerate(records.headers):
            why = next(filter(None, map(_wrong_header, headers or ())), None)
            if why is not None and (rows is None or rows[index].as_py()):
                yield Misfit(index, why)


def _no_topic(name: str | None) -> str:
    if name is None:
        return "its topic is null"
    return f"there is no topic {name!r}" if is_name(name) else f"{name[:300]!r} cannot be the name of a topic"


def _wrong_header(header: Header | None) -> str | None:
    if header is None:
        return "a header of it is null"
    name = header[0]
    if name is None:
        return "a header of it has no name"
    if "\0" in name:
        return "the name of a header of it has a null character, at which many clients cut it off"
    return None if name.isascii() or _is_utf8(name) else "the name of a header of it is not UTF-8"


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _untimely(times: pa.Array, topic: Topic) -> pa.Array:
    """Too long ago or too far ahead for the topic. The client takes 0 for "now", so that moment cannot be sent."""
    now = time.time_ns() // 1_000_000
    found = pc.less_equal(times, 0)
    if topic.before_ms is not None and topic.before_ms < now:
        found = pc.or_(found, pc.less(times, now - topic.before_ms))
    if topic.after_ms is not None and topic.after_ms < _FAR_AHEAD_MS:
        found = pc.or_(found, pc.greater(times, now + topic.after_ms))
    return pc.fill_null(found, False)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _sizes(records: Records) -> pa.Array:
    sizes = _lengths(records.values)
    if records.keys is not None:
        sizes = pc.add(sizes, _lengths(records.keys))
    if records.headers is not None:
        taken = [sum(_header_bytes(header) for header in row or ()) for row in records.headers]
        sizes = pc.add(sizes, pa.array(taken, pa.int64()))
    return sizes


def _header_bytes(header: Header | None) -> int:
    name, value = header or (None, None)
    return _HEADER_FRAME_BYTES + len((name or "").encode(errors="replace")) + len(value or b"")


def _lengths(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _both(mask: pa.Array, rows: pa.Array | None) -> pa.Array:
    return mask if rows is None else pc.and_(mask, rows)


def _named(mask: pa.Array, why: str) -> Iterator[Misfit]:
    for row in pc.indices_nonzero(mask).to_pylist():
        yield Misfit(row, why)
