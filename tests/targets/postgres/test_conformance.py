"""Both ways of the sink pass the suite for their template, against the real server."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.contracts import AnySink
from onceward.sinks.postgres.two_phase import PostgresTwoPhaseSink
from onceward.sinks.postgres.write_ahead import PostgresWriteAheadSink
from onceward.testing.conformance import TransactionalConformance, TwoPhaseConformance
from onceward.testing.engine import SCHEMA

from .conftest import Place

pytestmark = pytest.mark.cluster


class OnServer:
    options: dict[str, Any] = {}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _place(self, place: Place) -> None:
        self.place = place

    def read_rows(self) -> list[dict[str, Any]]:
        return self.place.rows()

    def chosen(self, name: str) -> AnySink:
        sink = self.place.sink(name=name, **self.options).choose()
        sink.check(SCHEMA, output_mode="append")
        return sink


class TestTwoPhase(OnServer, TwoPhaseConformance):
    def make_sink(self, name: str = "sink") -> PostgresTwoPhaseSink:
        sink = self.chosen(name)
        assert isinstance(sink, PostgresTwoPhaseSink)
        return sink


class TestWriteAheadAppend(OnServer, TransactionalConformance):
    options = {"two_phase": False}  # noqa: RUF012

    def make_sink(self, name: str = "sink") -> PostgresWriteAheadSink:
        sink = self.chosen(name)
        assert isinstance(sink, PostgresWriteAheadSink)
        return sink


class TestUpsert(TestWriteAheadAppend):
    options = {"mode": "upsert", "keys": ["id"]}  # noqa: RUF012
    writes_by_key = True
