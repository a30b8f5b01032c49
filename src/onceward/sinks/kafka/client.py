"""A client of the driver. Its errors leave as `KafkaFailed`: cleaned of secrets, with what the brokers said last."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from onceward.connections.kafka import driver, said
from onceward.errors import TargetRefused
from onceward.sinks.kafka.column_producer import ColumnProducer
from onceward.sinks.kafka.errors import KafkaFailed
from onceward.sinks.kafka.library import why_unusable
from onceward.sinks.kafka.producer import Producer
from onceward.sinks.kafka.record_producer import RecordProducer
from onceward.sinks.kafka.settings import Settings

PRODUCERS: dict[str, type[Producer]] = {"columns": ColumnProducer, "records": RecordProducer}
T = TypeVar("T")
_SAME_AGAIN_S = 60.0
_TOOK = re.compile(r"\d+ms")


class RepeatFilter(logging.Filter):
    """Lets a line pass once a minute: as long as a broker is away the driver writes ten a second, all the same."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Lines that differ only in how long something took are the same."""
        line, now = _TOOK.sub("", record.getMessage()), time.monotonic()
        self._last = {seen: at for seen, at in self._last.items() if now - at < _SAME_AGAIN_S}
        return self._last.setdefault(line, now) == now


log = logging.getLogger("onceward.kafka")
log.addFilter(RepeatFilter())


def claim_transactional_id(producer: Producer, topic: str, timeout_s: float) -> None:
    """Fence whoever had this producer's transactional id.

    The driver asks for a coordinator too early, and again only half a second later, unless it knows the brokers
    already; after one question for a topic that was still so in one start of four, after two in none of fifty.
    """
    for _ in range(2):
        producer.refresh_metadata(topic, timeout_s)
    producer.init_transactions(timeout_s)


def claim_from(transactional_id: str, settings: Settings, topic: str) -> None:
    """Fence whoever publishes under an id that is not ours any more."""
    client = Client(settings, f"taking the transactional id {transactional_id!r}")
    try:
        producer = client.make_producer(transactional_id)
        with client.raising_kafka_failed():
            claim_transactional_id(producer, topic, settings.timeout_s)
    except KafkaFailed as failed:
        if failed.code != driver().KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        raise TargetRefused(
            f"this job has published under the transactional id {transactional_id!r}, which this user may not take: a "
            "driver that still has it could send an epoch again",
            hint="allow WRITE on it for one start, or put id_prefix back",
        ) from None
    finally:
        client.close()


class Client:
    """What one client was about, and the last thing that it said by itself (a refused password comes only that way)."""

    def __init__(self, settings: Settings, doing: str) -> None:
        self._settings, self._doing = settings, doing
        self._words: list[str] = []
        self._refusals: list[str] = []
        self._made: Any = None

    def make(self, kind: Any, config: Mapping[str, Any]) -> Any:
        """A client of this kind whose log is ours."""
        words, refusals = self._words, self._refusals

        def note(error: Any) -> None:
            words[:] = [str(error.str())]
            if error.code() in (driver().KafkaError._AUTHENTICATION, driver().KafkaError._SSL):
                refusals.append(words[0])

        try:
            # No reference cycle: what is made must not know us, or it would live until the garbage collector runs.
            made = kind({**config, "error_cb": note, "logger": log})
        except driver().KafkaException as error:
            raise self.failed(said(error), error.args[0].code()) from None
        # A consumer's poll would take a record away.
        self._made = None if isinstance(made, driver().Consumer) else made
        return made

    def make_producer(self, transactional_id: str, *, batch_bytes: int | None = None) -> Producer:
        """By columns where the library is as it was tried, else record by record; or as the user wants it."""
        wanted = self._settings.producer_kind or ("columns" if why_unusable() is None else "records")
        made: Producer = self.make(
            PRODUCERS[wanted], self._settings.producer(transactional_id, batch_bytes=batch_bytes)
        )
        return made

    def close(self) -> None:
        """What was made is of no use from here on."""
        made, self._made = self._made, None
        if made is not None:
            made.close()

    @contextmanager
    def raising_kafka_failed(self) -> Iterator[None]:
        """The driver's errors become ours."""
        try:
            yield
        except driver().KafkaException as error:
            raise self.failed(said(error), error.args[0].code()) from None

    def wait(self, future: Future[T]) -> T:
        """What an admin's answer is, or its error."""
        with self.raising_kafka_failed():
            try:
                return future.result(self._settings.timeout_s + 5)
            except FutureTimeout:
                raise self.failed("no answer") from None

    def failed(self, why: str, code: int | None = None, *, topic: str | None = None) -> KafkaFailed:
        """An error that says what was being done."""
        if self._made is not None:
            with suppress(Exception):
                self._made.poll(0)
        words = "".join(f"; {word}" for word in self._refusals[-1:] or self._words if word not in why)
        message = self._settings.clean(f"{self._doing}: {why}{words}")
        return KafkaFailed(message, code, topic=topic, authentication_failed=bool(self._refusals))
