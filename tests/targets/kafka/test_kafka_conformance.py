"""The suite for transactional write-ahead sinks, on a real broker."""

from typing import Any, ClassVar

import pytest
from topics import KafkaWorkspace, Row

from onceward.sinks import KafkaSink
from onceward.testing.conformance import TransactionalConformance
from onceward.testing.engine import SCHEMA


class OnABroker(TransactionalConformance):
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _workspace(self, workspace: KafkaWorkspace) -> None:
        self.workspace = workspace

    def make_sink(self, name: str = "sink") -> KafkaSink:
        sink = self.workspace.sink(name=name, **self.options)
        sink.check(SCHEMA, output_mode="append")
        return sink

    def read_rows(self) -> list[Row]:
        return self.workspace.rows()


class TestJsonObjects(OnABroker):
    options: ClassVar[dict[str, Any]] = {"key": "key"}


class TestSlotBySlot(OnABroker):
    """A transaction for each slot."""

    options: ClassVar[dict[str, Any]] = {"key": "key", "max_rows_per_transaction": 1}


class TestRecordByRecord(OnABroker):
    """By confluent-kafka's own producer."""

    options: ClassVar[dict[str, Any]] = {"key": "key", "producer": "records"}
