"""A transactional producer that takes whole columns.

confluent-kafka's own takes one record a call, and an object for each part of it: a third of all that publishing costs.
librdkafka below it takes an array of records, straight from Arrow's buffers. Its settings, guarantees and errors
are the same.
"""

from __future__ import annotations

import ctypes
import logging
import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceward.connections.kafka import Setting, driver
from onceward.sinks.kafka.encode import Header, Records
from onceward.sinks.kafka.library import (
    ANY_PARTITION,
    COPY,
    FLAGS,
    FROM_QUEUE,
    HEADERS,
    IN_FLIGHT,
    KEY,
    MESSAGE,
    PART,
    PARTITION,
    PRODUCER,
    TIMESTAMP,
    TOPIC,
    VALUE,
    Message,
    OnDelivery,
    OnError,
    OnLog,
    library,
)
from onceward.sinks.kafka.producer import TRANSACTION_FAILED, Backpressure, Producer, Undelivered

_REASON_BYTES = 512
_SYSLOG = {3: logging.ERROR, 4: logging.WARNING, 5: logging.INFO, 6: logging.INFO, 7: logging.DEBUG}
_THREAD = re.compile(r"^\[thrd:[^\]]*\]: ")
_NOTHING = ctypes.create_string_buffer(1)
"""An address for texts that have no bytes; no address at all would make them null."""


@dataclass(slots=True)
class _Events:
    """What the library said, in the callbacks that run inside `poll` and `flush`."""

    errors: list[tuple[int, str]] = field(default_factory=list)
    undelivered: Undelivered = field(default_factory=Undelivered)


class ColumnProducer(Producer):
    """See `Producer`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = dict(config)
        logger = settings.pop("logger", logging.getLogger("onceward.kafka"))
        self._on_error: Callable[[Any], None] | None = settings.pop("error_cb", None)
        self._events = _Events()
        callbacks = _callbacks(self._events, logger)
        self._lib = library()
        self._handle: int | None = _opened(settings, callbacks)
        self._topics: dict[str, int] = {}
        # The callbacks have to live as long as the library may call them. They know nothing of this object, so that it
        # ends when its owner forgets it.
        self._end = weakref.finalize(self, _destroy, self._handle, self._topics, callbacks)
        self._end.atexit = False

    def __len__(self) -> int:
        return int(self._lib.rd_kafka_outq_len(self._alive()))

    def close(self) -> None:
        """See `Producer`."""
        self._handle = None
        self._end()

    @property
    def undelivered(self) -> Undelivered:
        """See `Producer`."""
        return self._events.undelivered

    # --- transactions -----------------------------------------------------------------------------

    def refresh_metadata(self, topic: str, timeout_s: float) -> None:
        """See `Producer`."""
        found = ctypes.c_void_p()
        self._check(
            self._lib.rd_kafka_metadata(
                self._alive(), 0, self._topic(topic), ctypes.byref(found), _milliseconds(timeout_s)
            )
        )
        self._lib.rd_kafka_metadata_destroy(found)

    def init_transactions(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._raise(self._lib.rd_kafka_init_transactions(self._alive(), _milliseconds(timeout_s)))

    def begin_transaction(self) -> None:
        """See `Producer`."""
        self._events.undelivered.clear()
        self._raise(self._lib.rd_kafka_begin_transaction(self._alive()))

    def commit_transaction(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._raise(self._lib.rd_kafka_commit_transaction(self._alive(), _milliseconds(timeout_s)))

    def abort_transaction(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._raise(self._lib.rd_kafka_abort_transaction(self._alive(), _milliseconds(timeout_s)))

    def poll(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._lib.rd_kafka_poll(self._alive(), _milliseconds(timeout_s))
        self._pass_on()

    def flush(self, timeout_s: float) -> int:
        """See `Producer`."""
        self._lib.rd_kafka_flush(self._alive(), _milliseconds(timeout_s))
        self._pass_on()
        return len(self)

    def purge(self) -> None:
        """See `Producer`."""
        self._check(self._lib.rd_kafka_purge(self._alive(), FROM_QUEUE))

    # --- records ----------------------------------------------------------------------------------

    def send(self, topic: str, records: Records) -> None:
        """See `Producer`."""
        if not len(records):
            return
        if records.timestamps is None and records.headers is None:
            self._send_together(self._topic(topic), records)
        else:
            self._send_each(self._topic(topic), records)

    def _send_together(self, topic: int, records: Records) -> None:
        messages = np.zeros(len(records), MESSAGE)
        messages["value"], messages["value_length"] = _places(records.values)
        if records.keys is not None:
            messages["key"], messages["key_length"] = _places(records.keys)
        for partition, those in _by_partition(messages, records.partitions):
            self._enqueue(topic, partition, those)

    def _enqueue(self, topic: int, partition: int, messages: Any) -> None:
        backpressure = Backpressure(self)
        while len(messages):
            self._lib.rd_kafka_produce_batch(topic, partition, COPY, messages.ctypes.data, len(messages))
            refused = np.flatnonzero(messages["err"])
            if not len(refused):
                return
            # When there is no room for one, none behind it is taken, so their order is kept.
            messages = messages[refused[0] :]
            backpressure.make_room(int(messages["err"][0]), some_were_taken=bool(refused[0]))

    def _send_each(self, topic: int, records: Records) -> None:
        """A record's time and headers can be given only in a call of its own."""
        parts = np.zeros((len(records), 7), PART)
        parts["kind"] = (TOPIC, PARTITION, VALUE, KEY, TIMESTAMP, FLAGS, HEADERS)
        parts["pointer"][:, 0] = topic
        parts["int32"][:, 1] = _partitions(records.partitions)
        parts["pointer"][:, 2], parts["length"][:, 2] = _places(records.values)
        if records.keys is not None:
            parts["pointer"][:, 3], parts["length"][:, 3] = _places(records.keys)
        # To the library 0 is "now".
        parts["int64"][:, 4] = 0 if records.timestamps is None else _numbers(pc.fill_null(records.timestamps, 0))
        parts["int32"][:, 5] = COPY
        first, step, count = parts.ctypes.data, parts.strides[0], parts.shape[1]
        produce, handle, lists = self._lib.rd_kafka_produceva, self._alive(), parts["pointer"][:, 6]
        for number, headers in enumerate(repeat(None, len(records)) if records.headers is None else records.headers):
            listed = self._headers(headers)
            if listed:
                lists[number] = listed
            if error := produce(handle, first + number * step, count):
                self._send_again(error, first + number * step, count, listed)

    def _send_again(self, error: int | None, parts: int, count: int, headers: int | None) -> None:
        backpressure = Backpressure(self)
        while error:
            try:
                backpressure.make_room(*self._taken(error))
            except BaseException:
                if headers:
                    self._lib.rd_kafka_headers_destroy(headers)
                raise
            error = self._lib.rd_kafka_produceva(self._alive(), parts, count)

    def _headers(self, headers: list[Header | None] | None) -> int | None:
        """Headers as the library wants them; they are its own once the record is taken."""
        if not headers:
            return None
        listed: int = self._lib.rd_kafka_headers_new(len(headers))
        for name, value in (header or (None, None) for header in headers):
            encoded = (name or "").encode()
            self._lib.rd_kafka_header_add(listed, encoded, len(encoded), value, len(value or b""))
        return listed

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            made = self._lib.rd_kafka_topic_new(self._alive(), name.encode(), None)
            if not made:
                self.fail(driver().KafkaError._INVALID_ARG, f"the client does not take the topic {name!r}")
            self._topics[name] = made
        return self._topics[name]

    # --- errors -----------------------------------------------------------------------------------

    def _alive(self) -> int:
        if self._handle is None:
            self.fail(driver().KafkaError._DESTROY, "the producer is closed")
        return self._handle

    def _pass_on(self) -> None:
        errors, self._events.errors[:] = list(self._events.errors), []
        for error in errors:
            if self._on_error is not None:
                self._on_error(driver().KafkaError(*error))

    def _check(self, code: int) -> None:
        if code:
            self.fail(code)

    def _raise(self, error: int | None) -> None:
        if error:
            self.fail(*self._taken(error))

    def _taken(self, error: int) -> tuple[int, str]:
        """Code and text of the library's error, which is ours to free."""
        code, text = self._lib.rd_kafka_error_code(error), _text(self._lib.rd_kafka_error_string(error))
        self._lib.rd_kafka_error_destroy(error)
        return code, text

    def fail(self, code: int, reason: str | None = None) -> NoReturn:
        """See `Producer`."""
        if code == driver().KafkaError._FATAL:
            said = ctypes.create_string_buffer(_REASON_BYTES)
            code = self._lib.rd_kafka_fatal_error(self._alive(), said, _REASON_BYTES) or code
            reason = _text(said.value) or reason
        _fail(code, reason or _text(self._lib.rd_kafka_err2str(code)))


def _opened(settings: Mapping[str, Setting], callbacks: tuple[Any, Any, Any]) -> int:
    lib = library()
    said = ctypes.create_string_buffer(_REASON_BYTES)
    conf = lib.rd_kafka_conf_new()
    handle: int | None = None
    try:
        # The library's own threads would call us at any time; so it waits until it is polled.
        for name, value in {**settings, "log.queue": True}.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if lib.rd_kafka_conf_set(conf, name.encode(), text.encode(), said, _REASON_BYTES):
                _fail(driver().KafkaError._INVALID_ARG, _text(said.value))
        on_delivery, on_error, on_log = callbacks
        lib.rd_kafka_conf_set_dr_msg_cb(conf, on_delivery)
        lib.rd_kafka_conf_set_error_cb(conf, on_error)
        lib.rd_kafka_conf_set_log_cb(conf, on_log)
        handle = lib.rd_kafka_new(PRODUCER, conf, said, _REASON_BYTES)
        if not handle:
            _fail(driver().KafkaError._INVALID_ARG, _text(said.value))
    finally:
        if not handle:
            lib.rd_kafka_conf_destroy(conf)
    lib.rd_kafka_set_log_queue(handle, None)
    return handle


def _callbacks(events: _Events, logger: logging.Logger) -> tuple[Any, Any, Any]:
    """They must not raise: nobody would hear of it."""

    def on_delivery(_: int, message: Any, __: int) -> None:
        failed: Message = message.contents
        if failed.err:
            lib = library()
            topic = _text(lib.rd_kafka_topic_name(failed.topic))
            events.undelivered.note(failed.err, _text(lib.rd_kafka_err2str(failed.err)), topic)

    def on_error(_: int, code: int, reason: bytes, __: int) -> None:
        events.errors.append((code, _text(reason)))

    def on_log(_: int, level: int, facility: bytes, line: bytes) -> None:
        text = _text(line)
        logger.log(_SYSLOG.get(level, logging.CRITICAL), "%s %s", _text(facility), text)
        if _text(facility) == TRANSACTION_FAILED:
            events.errors.append((driver().KafkaError._INCONSISTENT, _THREAD.sub("", text)))

    return OnDelivery(on_delivery), OnError(on_error), OnLog(on_log)


def _destroy(handle: int, topics: dict[str, int], callbacks: tuple[Any, Any, Any]) -> None:
    lib = library()
    lib.rd_kafka_purge(handle, FROM_QUEUE | IN_FLIGHT)
    for topic in topics.values():
        lib.rd_kafka_topic_destroy(topic)
    lib.rd_kafka_destroy(handle)
    del callbacks


def _places(column: pa.Array) -> tuple[Any, Any]:
    """Where the bytes of each value begin, and how many there are; no address for null.

    They are valid as long as the column is: one of another type would have to be copied, and the copy kept.
    """
    if column.type != pa.binary():
        raise TypeError(f"records are made of {pa.binary()}, not of {column.type}")
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.uint64)
    base = data.address if data is not None and data.size else ctypes.addressof(_NOTHING)
    places, lengths = bounds[:-1] + np.uint64(base), np.diff(bounds)
    if column.null_count:
        places[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return places, lengths


def _by_partition(messages: Any, partitions: pa.Array | None) -> Iterator[tuple[int, Any]]:
    """Records that go to the same partition, each in its order.

    Those that leave it to their key may go to the same as others that do not: they keep their place among them.
    The library could be told a partition for each record in one call, but then it makes partition -1 part of the
    transaction where it does not know the topic yet, and the brokers refuse it.
    """
    if partitions is None:
        yield ANY_PARTITION, messages
        return
    numbers = _partitions(partitions)
    if (numbers != ANY_PARTITION).all():
        for number in np.unique(numbers):
            yield int(number), messages[numbers == number]
        return
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
    for first, last in pairwise(bounds):
        yield int(numbers[first]), messages[first:last]


def _partitions(column: pa.Array | None) -> Any:
    """Null leaves it to the key."""
    return ANY_PARTITION if column is None else _numbers(pc.fill_null(column, ANY_PARTITION))


def _numbers(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _text(said: bytes | None) -> str:
    return (said or b"").decode(errors="replace")


def _fail(code: int, reason: str) -> NoReturn:
    kafka = driver()
    raise kafka.KafkaException(kafka.KafkaError(code, reason))
