"""What the sink needs of a transactional producer, whichever library call its records go out by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, NoReturn

from onceward.connections.kafka import driver
from onceward.sinks.kafka.encode import Records

POLL_S: Final = 0.01
TRANSACTION_FAILED: Final = "TXNERR"
"""The library writes why a transaction failed to its log, under this name, and nowhere else."""


class Undelivered(dict[tuple[int, str], str]):
    """Why records failed, by code and topic. One of each is enough, however many fail with it: a reason must not be
    crowded out by the records that are thrown away because of it."""

    def note(self, code: int, why: str, topic: str) -> None:
        """One record failed."""
        self.setdefault((code, topic), why)


class Producer(ABC):
    """One connection to the brokers under one transactional id. To be used by one thread at a time.

    Made from the library's settings, with a logger and a function for errors that belong to no call. What goes wrong is
    raised as confluent-kafka's `KafkaException`.
    """

    @abstractmethod
    def __len__(self) -> int:
        """How many records are not at the brokers yet."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything, without a word to the brokers."""

    @property
    @abstractmethod
    def undelivered(self) -> Undelivered:
        """Why records failed since the transaction began."""

    @abstractmethod
    def refresh_metadata(self, topic: str, timeout_s: float) -> None:
        """Get to know the brokers and the topic."""

    @abstractmethod
    def init_transactions(self, timeout_s: float) -> None:
        """Take the transactional id: whoever had it is fenced, and what that one left open is finished."""

    @abstractmethod
    def begin_transaction(self) -> None:
        """All that is sent from here on belongs to it."""

    @abstractmethod
    def commit_transaction(self, timeout_s: float) -> None:
        """After an error nobody knows whether it is in, unless the brokers are asked."""

    @abstractmethod
    def abort_transaction(self, timeout_s: float) -> None:
        """Nothing of it will be seen."""

    @abstractmethod
    def poll(self, timeout_s: float) -> None:
        """Hear what the library has to say."""

    @abstractmethod
    def flush(self, timeout_s: float) -> int:
        """Wait until all records are at the brokers; how many are not."""

    @abstractmethod
    def purge(self) -> None:
        """Throw away what was not sent yet. What is on its way is not forgotten."""

    @abstractmethod
    def send(self, topic: str, records: Records) -> None:
        """Hand these records to the library, in their order. Whether they arrive is told by `flush`.

        Waits while the library holds as much as it may.
        """

    @abstractmethod
    def fail(self, code: int, reason: str | None = None) -> NoReturn:
        """Raise as confluent-kafka would."""


class Backpressure:
    """For a record that the library has no room for now."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._was_empty = False

    def make_room(self, code: int, reason: str | None = None, *, some_were_taken: bool = False) -> None:
        """Wait a moment, so that it can be tried again."""
        if code != driver().KafkaError._QUEUE_FULL:
            self._producer.fail(code, reason)
        if self._was_empty and not some_were_taken:
            self._producer.fail(code, "a record is larger than all that the client can hold")
        self._producer.poll(POLL_S)
        # Looked at before it is tried again: records leave the library at any time.
        self._was_empty = not len(self._producer)
