"""The client library for Kafka, shared by the sink and the source: its import, its errors, and what of its settings is
secret."""

from __future__ import annotations

import _thread
import re
import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from onceward.errors import ConfigurationError

Setting = str | int | float | bool

_SECRET = re.compile(r"password|secret|token|\.pem$|private|sasl\.oauthbearer\.config|assertion", re.IGNORECASE)
_SHOWN = "***"


def driver(user: str = "KafkaSink") -> ModuleType:
    """The client library, or a clear word that it is missing. `user` is who needs it."""
    try:
        import confluent_kafka
    except ImportError:
        raise ConfigurationError(
            f"{user} needs the package confluent-kafka", hint="pip install 'onceward[kafka]'"
        ) from None
    return confluent_kafka


def admin_driver(user: str = "KafkaSink") -> ModuleType:
    """The part of it that asks for topics and makes them."""
    driver(user)
    from confluent_kafka import admin

    return admin


class AdminConnection:
    """The library's `AdminClient`, as `client`, which is never destroyed by a thread of its own.

    It answers in a thread of the library's, and Python's garbage collector may run in any thread. If it runs in that
    one and finds the client unreachable, the library takes that for a bug and aborts the process. So a client that
    nobody has closed is given to a new thread, which lets go of it.
    """

    def __init__(self, config: Mapping[str, Any], *, user: str = "KafkaSink") -> None:
        self._held = [admin_driver(user).AdminClient(config)]
        # No `threading.Thread`: its locks may be held by the very code that the collector interrupts.
        self._end = weakref.finalize(self, _thread.start_new_thread, self._held.clear, ())
        self._end.atexit = False

    @property
    def client(self) -> Any:
        """For questions, until it is closed."""
        return self._held[0]

    def poll(self, timeout_s: float) -> None:
        """Hear what the library has to say."""
        self.client.poll(timeout_s)

    def close(self) -> None:
        """Wait until its threads have ended."""
        self._end.detach()
        self._held.clear()


def said(error: Exception) -> str:
    """What the library says, without its wrapping."""
    first = error.args[0] if error.args else error
    told = getattr(first, "str", None)
    return str(told()) if callable(told) else str(first)


def without_secrets(text: str, config: Mapping[str, Setting]) -> str:
    """The text without the secrets of these settings, whoever put them there."""
    for name, value in config.items():
        if _SECRET.search(name) and str(value):
            text = text.replace(str(value), _SHOWN)
    return text


def shown(config: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings as they may be seen."""
    return {name: _SHOWN if _SECRET.search(name) else value for name, value in config.items()}


def not_taken(error: Exception, config: Mapping[str, Setting]) -> ConfigurationError:
    """The error for settings that the library refuses, before anything connects."""
    return ConfigurationError(
        f"the client does not take config: {without_secrets(said(error), config)}",
        hint="the names are those of librdkafka's CONFIGURATION.md",
    )
