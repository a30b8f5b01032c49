"""A client of the driver, and its errors as ours: cleaned of secrets, with what the brokers said last."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from onceward.sinks.kafka.producer import Producer
from onceward.sinks.kafka.settings import Settings, driver, said

T = TypeVar("T")
_SAME_AGAIN_S = 60.0
_TOOK = re.compile(r"\d+ms")


class NotAgain(logging.Filter):
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
log.addFilter(NotAgain())


def take_id(producer: Producer, topic: str, timeout_s: float) -> None:
    """Fence whoever had this producer's transactional id.

    The driver asks for a coordinator too early, and again only half a second later, unless it knows the brokers
    already; after one question for a topic that was still so in one start of four, after two in none of fifty.
    """
    for _ in range(2):
        producer.ask_for(topic, timeout_s)
    producer.init_transactions(timeout_s)


class KafkaFailed(Exception):
    """The brokers did not do what they were asked, or nobody knows whether they did. `code` is the driver's."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Client:
    """What one client was about, and the last thing that it said by itself (a refused password comes only that way)."""

    def __init__(self, settings: Settings, doing: str) -> None:
        self._settings, self._doing = settings, doing
        self._words: list[str] = []
        self._made: Any = None

    def make(self, kind: Any, config: Mapping[str, Any]) -> Any:
        """A client of this kind whose log is ours."""
        words = self._words

        def note(error: Any) -> None:
            words[:] = [str(error.str())]

        try:
            # What is made must not know us, who know it: nothing would end it before the next search for cycles.
            made = kind({**config, "error_cb": note, "logger": log})
        except driver().KafkaException as error:
            raise self.failed(said(error)) from None
        # A consumer's poll would take a record away.
        self._made = None if isinstance(made, driver().Consumer) else made
        return made

    def close(self) -> None:
        """What was made is of no use from here on."""
        made, self._made = self._made, None
        if isinstance(made, Producer):
            made.close()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The driver's errors become ours."""
        try:
            yield
        except driver().KafkaException as error:
            raise self.failed(said(error), error.args[0].code()) from None

    def wait(self, future: Future[T]) -> T:
        """What an admin's answer is, or its error."""
        with self.watched():
            try:
                return future.result(self._settings.timeout_s + 5)
            except FutureTimeout:
                raise self.failed("no answer") from None

    def failed(self, why: str, code: int | None = None) -> KafkaFailed:
        """An error that says what was being done."""
        if self._made is not None:
            with suppress(Exception):
                self._made.poll(0)
        words = "".join(f"; {word}" for word in self._words if word not in why)
        return KafkaFailed(self._settings.clean(f"{self._doing}: {why}{words}"), code)
