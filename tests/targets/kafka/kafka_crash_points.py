"""Crash points inside the Kafka sink: every call of its producer that the brokers notice, before it and after it.

The protocol's own operations are wrapped by `onceward.testing.wrappers`; this stands below them, between the sink and
the client library.
"""

from functools import partial
from typing import Any

import pytest

from onceward.sinks.kafka import client
from onceward.sinks.kafka.encode import Records
from onceward.sinks.kafka.producer import Producer
from onceward.testing.faults import FaultScope

_fault_scope = FaultScope()
crash_points = _fault_scope.life


class Watched(Producer):
    """Rows are at the brokers before the receipt follows them, so that a crash finds half a transaction there."""

    def _perform(self, what: str, call: Any) -> Any:
        return _fault_scope.perform(f"kafka {what}", call)

    def init_transactions(self, *args: Any) -> None:
        self._perform("init", partial(super().init_transactions, *args))

    def send(self, topic: str, records: Records) -> None:
        send = partial(super().send, topic, records)
        if not _fault_scope or not topic.startswith("receipts-"):
            return send()
        self.flush(10)
        self._perform("receipt", lambda: (send(), self.flush(10)))

    def commit_transaction(self, *args: Any) -> None:
        self._perform("commit", partial(super().commit_transaction, *args))

    def abort_transaction(self, *args: Any) -> None:
        self._perform("abort", partial(super().abort_transaction, *args))


def install_crash_points(patch: pytest.MonkeyPatch) -> None:
    """From here on calls of producers can be crash points."""
    for name, kind in client.PRODUCERS.items():
        patch.setitem(client.PRODUCERS, name, type(f"Watched{kind.__name__}", (Watched, kind), {}))
