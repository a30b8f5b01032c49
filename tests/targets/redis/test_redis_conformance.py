"""The suite for transactional write-ahead sinks, for every shape of a Redis sink, on a server and on a cluster."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from shapes import NOW, SHAPES, Reader, Row, Shape

from onceward.sinks import RedisSink
from onceward.testing.conformance import TransactionalConformance
from onceward.testing.conformance.base import OTHER, batches, job_named
from onceward.testing.servers import RedisCluster, RedisServer

COUNTER, FIELD_COUNTER, STRING, HASH, FIELD, SORTED_SET = SHAPES


class OnAServer(TransactionalConformance):
    shape: ClassVar[Shape]
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _server(self, server: RedisServer, reader: Reader) -> None:
        self.url, self.reader = server.url, reader

    def make_sink(self, name: str = "sink") -> RedisSink:
        return self.shape.sink(self.url, name=name, **self.options)

    def read_rows(self) -> list[Row]:
        return self.shape.read(self.reader)


class TestCounters(OnAServer):
    shape = COUNTER


class TestCountersOfWholeEpochs(OnAServer):
    shape = COUNTER
    options: ClassVar[dict[str, Any]] = {"max_rows_per_script": None}


class TestCountersInAHash(OnAServer):
    shape = FIELD_COUNTER


class TestCountersRowByRow(OnAServer):
    shape = COUNTER
    options: ClassVar[dict[str, Any]] = {"max_rows_per_script": 1}

    def test_a_failure_in_the_middle_leaves_nothing(self) -> None:
        """Nothing of the part in which it failed: what was in before stays, and is not repeated."""
        sink = self.make_sink()
        rows = [*batches(0), *batches(1)]
        whole = replace(self.values(sink, 0, 0), rows=4, read=lambda: iter(rows))

        def cut_short() -> Any:
            yield from rows
            raise ConnectionError("gone")

        with pytest.raises(ConnectionError):
            sink.send_transaction([replace(whole, read=cut_short)], self.job, 0, NOW)
        assert self.ids() == [0, 2]
        assert [(receipt.slot, receipt.is_whole) for receipt in sink.receipts(self.job)] == [(0, False)]
        assert sink.send_transaction([whole], self.job, 0, NOW)
        assert self.ids() == [0, 2, 10, 12]
        assert [(receipt.slot, receipt.is_whole) for receipt in sink.receipts(self.job)] == [(0, True)]


class Overwriting(OnAServer):
    """Where a row written twice is seen once, three tests of the suite have to look at something else."""

    def test_slots_without_a_receipt_are_written_as_they_are(self) -> None:
        sink = self.make_sink()
        for version in ("first", "again"):
            bare = replace(self.values(sink, 0, 0, version=version), receipt=None)
            assert sink.send_transaction([bare], self.job, 0, NOW)
        assert "again" in {row["version"] for row in self.read_rows()}
        assert list(sink.receipts(self.job)) == []

    def test_receipts_name_generation_and_fingerprint(self) -> None:
        sink, other = self.make_sink(), self.make_sink("sink 2")
        self.send(sink, 0, 0)
        self.send(sink, 0, 0, job=job_named("app-1", OTHER))
        self.send(sink, 0, 0, job=job_named("app-10"))
        self.send(other, 0, 0)
        found = {(r.job, r.generation, r.sink, r.epoch, r.slot, r.fingerprint) for r in sink.receipts(self.job)}
        assert found == {("app-1", g, sink.name, 0, 0, "fingerprintof000") for g in ("aaaaaaaa", OTHER)}

    def test_forgetting_does_not_silence_others(self) -> None:
        sink, other = self.make_sink(), self.make_sink("sink 2")
        self.send(sink, 5, 0)
        sink.forget(self.job, 5)
        for version, into, job in (
            ("generation", sink, job_named("app-1", OTHER)),
            ("job", sink, job_named("app-10")),
            ("sink", other, self.job),
        ):
            assert self.send(into, 0, 0, job=job, version=version)
            assert version in {row["version"] for row in self.read_rows()}


class TestStrings(Overwriting):
    shape = STRING


class TestHashes(Overwriting):
    shape = HASH


class TestFields(Overwriting):
    shape = FIELD


class TestSortedSets(Overwriting):
    shape = SORTED_SET


class OnACluster:
    """Before the other base: its fixture replaces the one for a single server."""

    @pytest.fixture(autouse=True)
    def _server(self, cluster: RedisCluster, cluster_reader: Reader) -> None:
        self.url, self.reader = cluster.url, cluster_reader


class TestCountersOnACluster(OnACluster, TestCounters):
    pass


class TestCountersInAHashOnACluster(OnACluster, TestCountersInAHash):
    pass


class TestStringsOnACluster(OnACluster, TestStrings):
    pass


class TestHashesOnACluster(OnACluster, TestHashes):
    pass


class TestFieldsOnACluster(OnACluster, TestFields):
    pass


class TestSortedSetsOnACluster(OnACluster, TestSortedSets):
    pass
