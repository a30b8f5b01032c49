"""confluent-kafka's own producer, which takes a record a call.

Slower than by columns, and independent of how librdkafka lays out its records in memory: for versions of it that were
never tried, for builds that hide its functions, and for whoever asks for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from onceward.connections.kafka import driver
from onceward.sinks.kafka.encode import Header, Records
from onceward.sinks.kafka.producer import TRANSACTION_FAILED, Backpressure, Producer, Undelivered

_ANY_PARTITION = -1


class RecordProducer(Producer):
    """See `Producer`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = dict(config)
        logger = settings.pop("logger", logging.getLogger("onceward.kafka"))
        self._undelivered = Undelivered()
        # None of the callbacks knows this object, so that it ends when its owner forgets it.
        watched = _Log(logger, settings.get("error_cb", lambda error: None))
        on_delivery = _noting(self._undelivered)
        self._made: Any = driver().Producer({**settings, "logger": watched, "on_delivery": on_delivery})

    def __len__(self) -> int:
        return len(self._alive())

    def close(self) -> None:
        """See `Producer`."""
        made, self._made = self._made, None
        if made is not None:
            made.purge(in_queue=True, in_flight=True, blocking=False)

    @property
    def undelivered(self) -> Undelivered:
        """See `Producer`."""
        return self._undelivered

    def refresh_metadata(self, topic: str, timeout_s: float) -> None:
        """See `Producer`."""
        self._alive().list_topics(topic, timeout_s)

    def init_transactions(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._alive().init_transactions(timeout_s)

    def begin_transaction(self) -> None:
        """See `Producer`."""
        self._undelivered.clear()
        self._alive().begin_transaction()

    def commit_transaction(self, timeout_s: float) -> None:
        """See `Producer`."""
        with _fatal_errors():
            self._alive().commit_transaction(timeout_s)

    def abort_transaction(self, timeout_s: float) -> None:
        """See `Producer`."""
        with _fatal_errors():
            self._alive().abort_transaction(timeout_s)

    def poll(self, timeout_s: float) -> None:
        """See `Producer`."""
        with _fatal_errors():
            self._alive().poll(timeout_s)

    def flush(self, timeout_s: float) -> int:
        """See `Producer`."""
        with _fatal_errors():
            return int(self._alive().flush(timeout_s))

    def purge(self) -> None:
        """See `Producer`."""
        self._alive().purge(in_queue=True, in_flight=False)

    def send(self, topic: str, records: Records) -> None:
        """See `Producer`."""
        for arguments in _calls(records):
            backpressure = Backpressure(self)
            while not self._is_taken(topic, arguments):
                backpressure.make_room(driver().KafkaError._QUEUE_FULL)

    def _is_taken(self, topic: str, arguments: Mapping[str, Any]) -> bool:
        try:
            self._alive().produce(topic, **arguments)
        except BufferError:
            return False
        return True

    def _alive(self) -> Any:
        if self._made is None:
            self.fail(driver().KafkaError._DESTROY, "the producer is closed")
        return self._made

    def fail(self, code: int, reason: str | None = None) -> NoReturn:
        """See `Producer`."""
        kafka = driver()
        raise kafka.KafkaException(kafka.KafkaError(code, reason))


@contextmanager
def _fatal_errors() -> Iterator[None]:
    """Around what calls back. A fatal error is raised there, and yet more reports of deliveries may follow: Python then
    complains that they return while an error is raised, and has that error as the cause."""
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while isinstance(cause, SystemError):
            cause = cause.__cause__
        if isinstance(cause, driver().KafkaException):
            raise cause from None
        raise


class _Log:
    """A logger for the library, which passes on why a transaction failed."""

    def __init__(self, logger: logging.Logger, on_error: Callable[[Any], None]) -> None:
        self._logger, self._on_error = logger, on_error

    def log(self, level: int, text: str, facility: str, client: str, line: str) -> None:
        """As the library calls it."""
        self._logger.log(level, "%s %s", facility, line)
        if facility == TRANSACTION_FAILED:
            kafka = driver()
            self._on_error(kafka.KafkaError(kafka.KafkaError._INCONSISTENT, line.partition("]: ")[2] or line))


def _noting(undelivered: Undelivered) -> Callable[[Any, Any], None]:
    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            undelivered.note(error.code(), error.str(), message.topic())

    return on_delivery


def _calls(records: Records) -> Iterator[dict[str, Any]]:
    """The arguments of each call."""
    count = len(records)
    keys = repeat(None, count) if records.keys is None else _bytes(records.keys)
    partitions = repeat(_ANY_PARTITION, count) if records.partitions is None else _numbers(records.partitions, -1)
    # To the library 0 is "now".
    times = repeat(0, count) if records.timestamps is None else _numbers(records.timestamps, 0)
    headers = repeat(None, count) if records.headers is None else map(_headers, records.headers)
    for value, key, partition, time, listed in zip(
        _bytes(records.values), keys, partitions, times, headers, strict=True
    ):
        arguments = {"value": value, "key": key, "partition": partition, "timestamp": time}
        yield {**arguments, "headers": listed} if listed else arguments


def _bytes(column: pa.Array) -> list[bytes | None]:
    if column.type != pa.binary():
        raise TypeError(f"records are made of {pa.binary()}, not of {column.type}")
    values: list[bytes | None] = column.to_pylist()
    return values


def _numbers(column: pa.Array, null: int) -> list[int]:
    numbers: list[int] = pc.fill_null(column, null).to_pylist()
    return numbers


def _headers(headers: list[Header | None] | None) -> list[tuple[str, bytes | None]] | None:
    return [(name or "", value) for name, value in (header or (None, None) for header in headers)] if headers else None
