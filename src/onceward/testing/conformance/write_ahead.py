"""The suites for sinks whose rows wait in onceward's own log."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any

from onceward.contracts import Guarantee, Receipt, SlotValues, TransactionalWriteAheadSink, WriteAheadSink
from onceward.errors import CheckpointRolledBack
from onceward.identity import Fingerprint, JobIdentity
from onceward.testing.conformance.base import AT, OTHER, SinkConformance, batches, job_named


class TransactionalConformance(SinkConformance):
    """For `TransactionalWriteAheadSink`."""

    @abstractmethod
    def make_sink(self, name: str = "sink") -> TransactionalWriteAheadSink:
        """See `SinkConformance.make_sink`."""

    def values(
        self,
        sink: TransactionalWriteAheadSink,
        epoch: int,
        slot: int,
        *,
        job: JobIdentity | None = None,
        version: str = "v",
    ) -> SlotValues:
        """One slot as the publisher hands it over."""
        job = job or self.job
        receipt = Receipt(job.name, job.generation, sink.name, epoch, slot, Fingerprint(f"fingerprintof{epoch:03d}"))
        kept = batches(epoch, slot, version=version)
        return SlotValues(slot, sum(b.num_rows for b in kept), receipt, partial(iter, kept))

    def send(
        self,
        sink: TransactionalWriteAheadSink,
        epoch: int,
        *slots: int,
        job: JobIdentity | None = None,
        version: str = "v",
    ) -> bool:
        """Send slots as the publisher does."""
        job = job or self.job
        values = [self.values(sink, epoch, slot, job=job, version=version) for slot in slots]
        return sink.send_transaction(values, job, epoch, AT)

    def test_what_is_sent_is_visible_once(self) -> None:
        """With a receipt for every slot."""
        sink = self.make_sink()
        assert self.send(sink, 0, 0, 1)
        assert self.ids() == [0, 1, 2, 3]
        assert {(r.epoch, r.slot) for r in sink.receipts(self.job)} == {(0, 0), (0, 1)}

    def test_sending_again_leaves_one_copy(self) -> None:
        """Scenarios 5 and 7: the reply was lost, or the driver died before it knew."""
        sink = self.make_sink()
        assert self.send(sink, 0, 0, 1)
        assert self.send(self.make_sink(), 0, 0, 1, version="again")
        assert self.ids() == [0, 1, 2, 3]
        assert {row["version"] for row in self.read_rows()} == {"v"}

    def test_a_receipt_of_other_rows_is_refused(self) -> None:
        """Scenario 34: the checkpoint went back. To take the receipt for that of these rows would lose them."""
        sink = self.make_sink()
        assert self.send(sink, 0, 0)
        values = self.values(sink, 0, 0, version="other")
        assert values.receipt is not None
        values = replace(values, receipt=replace(values.receipt, fingerprint=Fingerprint("fingerprint-of-other")))
        try:
            sink.send_transaction([values], self.job, 0, AT)
        except CheckpointRolledBack:
            pass
        else:
            raise AssertionError("rows were taken for sent by the receipt of others")
        assert {row["version"] for row in self.read_rows()} == {"v"}

    def test_only_the_slots_that_are_missing_are_sent(self) -> None:
        """Scenario 4."""
        sink = self.make_sink()
        assert self.send(sink, 0, 1)
        assert self.send(sink, 0, 0, 1)
        assert self.ids() == [0, 1, 2, 3]

    def test_a_failure_in_the_middle_leaves_nothing(self) -> None:
        """A crash inside the transaction: neither rows nor receipts of it."""
        sink = self.make_sink()

        def cut_short() -> Any:
            yield batches(0, 0)[0]
            raise ConnectionError("gone")

        torn = replace(self.values(sink, 0, 0), read=cut_short)
        try:
            sent = sink.send_transaction([torn], self.job, 0, AT)
        except Exception:
            sent = False
        assert not sent
        assert self.ids() == []
        assert list(sink.receipts(self.job)) == []
        assert self.send(sink, 0, 0)
        assert self.ids() == [0, 2]

    def test_an_empty_epoch_and_an_empty_slot_are_fine(self) -> None:
        """Scenario 19."""
        sink = self.make_sink()
        assert sink.send_transaction([], self.job, 0, AT)
        empty = replace(self.values(sink, 1, 0), rows=0, read=lambda: iter(()))
        assert sink.send_transaction([empty], self.job, 1, AT)
        assert self.ids() == []

    def test_slots_without_a_receipt_are_written_as_they_are(self) -> None:
        """The weaker guarantees ask for no proof."""
        sink = self.make_sink()
        bare = replace(self.values(sink, 0, 0), receipt=None)
        for _ in range(2):
            assert sink.send_transaction([bare], self.job, 0, AT)
        assert self.ids() == self.seen([0, 0, 2, 2])
        assert list(sink.receipts(self.job)) == []

    def test_receipts_name_generation_and_fingerprint(self) -> None:
        """Of all generations of this job's name and this sink, and of no other job."""
        sink, other = self.make_sink(), self.make_sink("sink 2")
        self.send(sink, 0, 0)
        self.send(sink, 0, 0, job=job_named("app-1", OTHER))
        self.send(sink, 0, 0, job=job_named("app-10"))
        self.send(other, 0, 0)
        found = {(r.job, r.generation, r.sink, r.epoch, r.slot, r.fingerprint) for r in sink.receipts(self.job)}
        expected = {("app-1", g, sink.name, 0, 0, "fingerprintof000") for g in ("aaaaaaaa", OTHER)}
        assert found == expected
        assert self.ids() == self.seen([0] * 4 + [2] * 4)

    def test_after_forgetting_a_slow_publisher_repeats_nothing(self) -> None:
        """Scenario 26: the target itself remembers how far its receipts were pruned."""
        sink = self.make_sink()
        for epoch in range(4):
            self.send(sink, epoch, 0)
        sink.forget(self.job, 3)
        sink.forget(self.job, 2)
        for epoch in range(4):
            assert self.send(sink, epoch, 0)
        assert self.ids() == [0, 2, 10, 12, 20, 22, 30, 32]
        assert {r.epoch for r in sink.receipts(self.job)} >= {3}
        assert self.send(sink, 4, 0)
        assert self.ids()[-2:] == [40, 42]

    def test_forgetting_does_not_silence_others(self) -> None:
        """The watermark belongs to one job, generation and sink."""
        sink, other = self.make_sink(), self.make_sink("sink 2")
        self.send(sink, 5, 0)
        sink.forget(self.job, 5)
        assert self.send(sink, 0, 0, job=job_named("app-1", OTHER))
        assert self.send(sink, 0, 0, job=job_named("app-10"))
        assert self.send(other, 0, 0)
        assert self.ids() == self.seen([0, 0, 0, 2, 2, 2, 50, 52])

    def test_names_in_any_script_and_with_quotes(self) -> None:
        """Scenario 70."""
        job = job_named("Zähler '\"; DROP TABLE x; -- 数 .%_*")
        sink = self.make_sink("naïve 'sink' 🦆.%_")
        for _ in range(2):
            assert self.send(sink, 0, 0, job=job)
        assert self.ids() == [0, 2]
        assert [r.job for r in sink.receipts(job)] == [job.name]


class WriteAheadConformance(SinkConformance):
    """For plain `WriteAheadSink`: no row is lost; a repetition may duplicate, and the sink says so."""

    @abstractmethod
    def make_sink(self, name: str = "sink") -> WriteAheadSink:
        """See `SinkConformance.make_sink`."""

    def test_it_does_not_promise_more_than_at_least_once(self) -> None:
        """A job that asks for exactly-once must be refused, or be told."""
        assert self.make_sink().guarantee is Guarantee.AT_LEAST_ONCE

    def test_what_is_sent_is_visible(self) -> None:
        """All of it, in order."""
        assert self.make_sink().send_values(iter(batches(0)), 0, AT)
        assert [row["id"] for row in self.read_rows()] == [0, 2]

    def test_sending_again_loses_nothing(self) -> None:
        """Scenario 7."""
        for _ in range(2):
            assert self.make_sink().send_values(iter(batches(0)), 0, AT)
        assert set(self.ids()) == {0, 2}

    def test_an_empty_slot_is_fine(self) -> None:
        """Scenario 19."""
        assert self.make_sink().send_values(iter(()), 0, AT)
        assert self.ids() == []

    def test_the_committer_remembers_slots_across_processes(self) -> None:
        """Of one job, generation and sink; and keeps to that after forgetting."""
        sink = self.make_sink()
        if sink.committer is None:
            return
        sink.committer.open(self.job, sink.name)
        for _ in range(2):
            sink.committer.commit_checkpoint(1, 7)
        again = pickle.loads(pickle.dumps(self.make_sink().committer))
        again.open(self.job, sink.name)
        assert [again.is_checkpoint_committed(s, e) for s, e in ((1, 7), (0, 7), (1, 6), (7, 1))] == [True] + [
            False
        ] * 3
        again.forget(7)
        assert again.is_checkpoint_committed(1, 7)
        for job, name in ((job_named("app-10"), "sink"), (job_named("app-1", OTHER), "sink"), (self.job, "sink 2")):
            again.open(job, type(sink.name)(name))
            assert not again.is_checkpoint_committed(1, 7)
