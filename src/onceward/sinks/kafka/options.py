"""What the user asked for, checked: which rows go where, and what becomes of them. Nothing here connects.

How the brokers are reached is in `settings`; which columns that makes of a stream, in `columns`.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceward.errors import ConfigurationError
from onceward.sinks.kafka.limits import is_name
from onceward.sinks.kafka.settings import Settings

FORMATS = ("string", "json", "bytes")


@dataclass(frozen=True, slots=True)
class Choice:
    """What the options say. `topic` is one for all rows, the others name columns."""

    topic: str | None = None
    topic_column: str | None = None
    key: tuple[str, ...] = ()
    value: tuple[str, ...] = ()
    format: str | None = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.topic is not None and self.topic_column is not None:
            raise ConfigurationError("both topic and topic_column are given", hint="leave one of them out")
        if self.format is not None and self.format not in FORMATS:
            raise ConfigurationError(f"format is {self.format!r}", hint=f"choose one of {', '.join(FORMATS)}")
        if self.format in ("string", "bytes") and len(self.value) != 1:
            raise ConfigurationError(
                f"format {self.format} makes a record's value of one column", hint="name it: value='column'"
            )


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a `KafkaSink`."""

    choice: Choice
    settings: Settings
    receipts_topic: str
    create_partitions: int | None
    max_rows_per_transaction: int

    def __post_init__(self) -> None:
        """Refuse what cannot work. `choice` and `settings` have done so."""
        for option, name in (("topic", self.choice.topic), ("receipts_topic", self.receipts_topic)):
            if name is not None and not is_name(name):
                raise ConfigurationError(
                    f"{option} is {name!r}", hint="use 1 to 249 letters, digits, dots, hyphens and underscores"
                )
        if self.choice.topic == self.receipts_topic:
            raise ConfigurationError("topic and receipts_topic are the same", hint="receipts need a topic of their own")
        if self.create_partitions is not None and self.create_partitions < 1:
            raise ConfigurationError(f"create_partitions is {self.create_partitions}", hint="give 1 or more")
        if self.max_rows_per_transaction < 1:
            raise ConfigurationError(
                f"max_rows_per_transaction is {self.max_rows_per_transaction}", hint="give 1 or more"
            )

    @property
    def topics(self) -> list[str]:
        """The one of all rows, if there is one, and that of the receipts."""
        return [name for name in (self.choice.topic, self.receipts_topic) if name is not None]
