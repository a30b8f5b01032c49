"""How the brokers are reached: the client's settings, which of them are ours, and what of them is secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from onceward.connections.kafka import Setting, driver, not_taken, shown, without_secrets
from onceward.errors import ConfigurationError
from onceward.identity import JobIdentity, SinkName, digest
from onceward.sinks.kafka.library import library

# What exactly-once rests on, or what an option of the sink says.
_OURS = {
    "bootstrap.servers": "it is the sink's first argument",
    "metadata.broker.list": "it is the sink's first argument",
    "transactional.id": "the sink makes it from the names of job and sink",
    "transaction.timeout.ms": "say transaction_timeout_s",
    "enable.idempotence": "it is always on",
    "acks": "it is always all",
    "request.required.acks": "it is always all",
    "isolation.level": "receipts are always read committed",
    "group.id": "the sink joins no group",
    "enable.auto.commit": "the sink commits no offsets",
    "enable.partition.eof": "the sink needs it",
    "auto.offset.reset": "receipts are always read from the beginning",
    "delivery.report.only.error": "the sink needs it",
    "compression.type": "say compression",
    "compression.codec": "say compression",
    "message.max.bytes": "the topics' own max.message.bytes counts",
}
# These are not only for producers.
_OF_CONNECTIONS = re.compile(
    r"(security|sasl|ssl|enable\.ssl|enable\.sasl|https|client|socket|connections|reconnect|retry|metadata|broker|api|"
    r"resolve|debug|log)\b.*|log_level"
)
_GIVE_UP = ("message.timeout.ms", "delivery.timeout.ms")
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_PRODUCERS = ("columns", "records")
_DRIVERS_MOST_BYTES = 1_000_000_000


@dataclass(frozen=True)
class Settings:
    """Checked when made, without a connection. Its repr shows no secret."""

    servers: str
    config: Mapping[str, Setting] = field(repr=False)
    compression: str
    transaction_timeout_s: float
    timeout_s: float
    id_prefix: str
    producer_kind: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.servers or not all(re.fullmatch(r"[^\s,]+:\d{1,5}", one) for one in self.servers.split(",")):
            raise ConfigurationError(f"{self.servers!r} names no brokers", hint="say host:port, or several with commas")
        for name, value in self.config.items():
            if name in _OURS:
                raise ConfigurationError(f"{name} cannot be set in config", hint=_OURS[name])
            if not isinstance(value, str | int | float | bool):
                raise ConfigurationError(f"{name} in config is a {type(value).__name__}", hint="give text or a number")
            if name in _GIVE_UP and str(value).strip() in ("0", "0.0"):
                # Then a record that the brokers never take would be waited for without end.
                raise ConfigurationError(f"{name} is 0 in config", hint="leave it out: it is transaction_timeout_s")
        if self.compression not in _COMPRESSIONS:
            raise ConfigurationError(
                f"compression is {self.compression!r}", hint=f"choose one of {', '.join(_COMPRESSIONS)}"
            )
        if not 1 <= self.transaction_timeout_s <= 2_147_483:
            raise ConfigurationError(
                f"transaction_timeout_s is {self.transaction_timeout_s}", hint="give seconds, 1 or more"
            )
        if self.timeout_s <= 0:
            raise ConfigurationError(f"timeout_s is {self.timeout_s}", hint="give seconds")
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", self.id_prefix):
            raise ConfigurationError(
                f"id_prefix is {self.id_prefix!r}", hint="use letters, digits, dots, hyphens and underscores"
            )
        if self.producer_kind not in (None, *_PRODUCERS):
            raise ConfigurationError(
                f"producer is {self.producer_kind!r}", hint=f"choose one of {', '.join(_PRODUCERS)}, or leave it out"
            )
        if self.producer_kind == "columns":
            library()
        self._refuse_what_the_driver_refuses()

    def _refuse_what_the_driver_refuses(self) -> None:
        kafka = driver()
        try:
            # Without an address it connects to nobody.
            kafka.Producer({**self.producer("check"), "bootstrap.servers": "", "log_level": 0})
        except (kafka.KafkaException, TypeError, ValueError) as error:
            raise not_taken(error, self.config) from None

    def connection(self) -> dict[str, Setting]:
        """For every kind of client."""
        return {
            "bootstrap.servers": self.servers,
            "client.id": "onceward",
            "socket.keepalive.enable": True,
            **{name: value for name, value in self.config.items() if _OF_CONNECTIONS.fullmatch(name)},
        }

    def producer(self, transactional_id: str, *, batch_bytes: int | None = None) -> dict[str, Setting]:
        """For the client that publishes under this id."""
        return {
            **self.connection(),
            # As Java's clients and Spark's own sink place keys, so that topics stay joinable.
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 256 << 10,
            "topic.metadata.propagation.max.ms": 5_000,
            # What each topic takes is known, and checked before: the driver's own limit would only be in the way.
            "message.max.bytes": _DRIVERS_MOST_BYTES,
            **self.config,
            **({} if batch_bytes is None else {"batch.size": batch_bytes}),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": round(self.transaction_timeout_s * 1000),
            "enable.idempotence": True,
            "compression.type": self.compression,
            "delivery.report.only.error": True,
        }

    def consumer(self, *, read_committed: bool = True) -> dict[str, Setting]:
        """For the client that reads receipts. It joins no group, but the driver wants one named."""
        return {
            **self.connection(),
            "group.id": f"{self.id_prefix}-receipts",
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # An empty answer tells where the topic ends, and is waited for.
            "fetch.wait.max.ms": 5,
        }

    def transactional_id(self, job: JobIdentity, sink: SinkName) -> str:
        """One for each generation of a job and each of its sinks, for ever the same: who takes it fences the last."""
        return f"{self.id_prefix}-{digest(job.name, 16)}-{job.generation}-{digest(sink, 16)}"

    def clean(self, text: str) -> str:
        """The text without the secrets, whoever put them there."""
        return without_secrets(text, self.config)

    def shown(self) -> dict[str, Setting]:
        """The settings as they may be seen."""
        return shown(self.config)
