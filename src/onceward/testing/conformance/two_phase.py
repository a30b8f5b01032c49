"""The suite for sinks whose rows wait in transactions of the target."""

from __future__ import annotations

import json
import pickle
from abc import abstractmethod
from typing import Any

from onceward.contracts import AlreadyCommitted, Committed, Handle, Receipt, SlotContext, TwoPhaseCommitSink
from onceward.identity import Fingerprint, JobIdentity, RunId, TransactionName
from onceward.testing.conformance.base import AT, OTHER, SinkConformance, batches, job_named


class TwoPhaseConformance(SinkConformance):
    """For `TwoPhaseCommitSink`."""

    @abstractmethod
    def make_sink(self, name: str = "sink") -> TwoPhaseCommitSink[Any]:
        """See `SinkConformance.make_sink`."""

    def context(
        self,
        sink: TwoPhaseCommitSink[Any],
        *,
        epoch: int = 0,
        slot: int = 0,
        attempt: int = 1,
        takeover: int = 0,
        run: str = "rrrrrr",
        job: JobIdentity | None = None,
    ) -> SlotContext:
        """The context of one attempt."""
        return SlotContext(
            job=job or self.job,
            sink=sink.name,
            epoch=epoch,
            takeover=takeover,
            slot=slot,
            attempt=attempt,
            run=RunId(run),
            timestamp=AT,
            fingerprint=Fingerprint(f"fingerprintof{epoch:03d}"),
        )

    def stage(self, sink: TwoPhaseCommitSink[Any], context: SlotContext, **options: str) -> Handle:
        """Stage an attempt on an executor; the handle as it comes back from storage."""
        remote: TwoPhaseCommitSink[Any] = pickle.loads(pickle.dumps(sink))
        transaction = remote.begin_transaction(context)
        for batch in batches(context.epoch, context.slot, attempt=context.attempt, **options):
            remote.invoke(transaction, batch)
        handle = {**remote.pre_commit(transaction), "transaction": str(context.transaction)}
        stored: Handle = json.loads(json.dumps(handle, allow_nan=False))
        return stored

    def pending(self, sink: TwoPhaseCommitSink[Any], job: JobIdentity | None = None) -> set[str]:
        """The names of what the target holds of ours."""
        return {str(handle["transaction"]) for handle in sink.pending(job or self.job)}

    def test_nothing_is_visible_before_the_commit(self) -> None:
        """Scenario 18."""
        sink = self.make_sink()
        self.stage(sink, self.context(sink))
        assert self.ids() == []
        assert list(sink.receipts(self.job)) == []

    def test_what_the_target_does_not_hold_is_named_before_the_decision(self) -> None:
        """Scenario 73: in the order of the handles, from any process, and looking changes nothing."""
        sink = self.make_sink()
        if type(sink).verify is TwoPhaseCommitSink.verify:
            return
        handles = [self.stage(sink, self.context(sink, slot=slot)) for slot in (0, 1)]
        assert list(self.make_sink().verify(handles)) == [None, None]
        assert list(sink.verify([])) == []
        sink.abort(handles[0])
        gone, there = self.make_sink().verify(handles)
        assert gone
        assert there is None
        assert sink.commit(handles[1]) == Committed()
        assert self.ids() == [1, 3]

    def test_a_commit_shows_every_row_once(self) -> None:
        """And leaves nothing pending."""
        sink = self.make_sink()
        handles = [self.stage(sink, self.context(sink, slot=slot)) for slot in (0, 1)]
        assert [sink.commit(handle) for handle in handles] == [Committed(), Committed()]
        assert self.ids() == [0, 1, 2, 3]
        assert self.pending(sink) == set()

    def test_a_commit_from_another_process_shows_every_row_once(self) -> None:
        """The handle alone must do."""
        sink = self.make_sink()
        handle = self.stage(sink, self.context(sink))
        assert self.make_sink().commit(handle) == Committed()
        assert self.ids() == [0, 2]

    def test_a_commit_that_is_repeated_leaves_one_copy(self) -> None:
        """Scenario 5: the reply was lost."""
        sink = self.make_sink()
        handle = self.stage(sink, self.context(sink))
        sink.commit(handle)
        assert sink.commit(handle) == AlreadyCommitted()
        assert self.make_sink().commit(handle) == AlreadyCommitted()
        assert self.ids() == [0, 2]

    def test_committing_all_slots_together_is_committing_each_and_can_be_repeated(self) -> None:
        """Scenario 4: some were committed before the driver died, the others are now."""
        sink = self.make_sink()
        handles = [self.stage(sink, self.context(sink, slot=slot)) for slot in (0, 1)]
        sink.commit(handles[1])
        assert list(sink.commit_all(handles)) == [Committed(), AlreadyCommitted()]
        assert list(self.make_sink().commit_all(handles)) == [AlreadyCommitted(), AlreadyCommitted()]
        assert list(sink.commit_all([])) == []
        assert self.ids() == [0, 1, 2, 3]

    def test_committing_all_names_the_slot_that_is_gone(self) -> None:
        """Scenario 52: and never hides it behind the others."""
        sink = self.make_sink()
        handles = [self.stage(sink, self.context(sink, slot=slot)) for slot in (0, 1)]
        sink.abort(handles[0])
        first, second = sink.commit_all(handles)
        assert not isinstance(first, Committed | AlreadyCommitted)
        assert isinstance(second, Committed | AlreadyCommitted)
        assert self.ids() == [1, 3]

    def test_a_commit_of_what_was_aborted_never_claims_success(self) -> None:
        """Scenario 52: it is noticed."""
        sink = self.make_sink()
        handle = self.stage(sink, self.context(sink))
        sink.abort(handle)
        assert not isinstance(sink.commit(handle), Committed | AlreadyCommitted)
        assert self.ids() == []

    def test_an_abort_leaves_nothing_and_can_be_repeated(self) -> None:
        """Scenario 14."""
        sink = self.make_sink()
        handle = self.stage(sink, self.context(sink))
        for _ in range(3):
            sink.abort(handle)
        assert self.pending(sink) == set()
        assert self.ids() == []

    def test_an_abort_never_touches_what_was_committed(self) -> None:
        """An abort that was delayed arrives after all is done."""
        sink = self.make_sink()
        handle = self.stage(sink, self.context(sink))
        sink.commit(handle)
        sink.abort(handle)
        assert self.ids() == [0, 2]
        assert sink.commit(handle) == AlreadyCommitted()

    def test_pending_lists_what_is_staged_and_its_handles_can_be_aborted(self) -> None:
        """That is all that recovery has to go by."""
        sink = self.make_sink()
        context = self.context(sink)
        self.stage(sink, context)
        assert self.pending(sink) == {str(context.transaction)}
        for handle in list(self.make_sink().pending(self.job)):
            assert TransactionName.parse(str(handle["transaction"])) is not None
            sink.abort(handle)
        assert self.pending(sink) == set()

    def test_an_attempt_that_died_before_its_pre_commit_can_be_cleaned_up(self) -> None:
        """Scenario 1: what is left of it, if anything, is listed and can be aborted."""
        sink = self.make_sink()
        transaction = sink.begin_transaction(self.context(sink))
        for batch in batches(0):
            sink.invoke(transaction, batch)
        sink.discard(transaction)
        for handle in list(sink.pending(self.job)):
            sink.abort(handle)
        assert self.pending(sink) == set()
        assert self.ids() == []

    def test_pending_is_confined_to_job_generation_and_sink(self) -> None:
        """Scenarios 32, 35 and 42: nobody else's transactions are ever touched."""
        sink, other = self.make_sink(), self.make_sink("sink 2")
        mine = self.context(sink)
        self.stage(sink, mine)
        self.stage(sink, self.context(sink, job=job_named("app-10")))
        self.stage(sink, self.context(sink, job=job_named("app-1", OTHER)))
        self.stage(other, self.context(other))
        assert self.pending(sink) == {str(mine.transaction)}
        for handle in list(sink.pending(self.job)):
            sink.abort(handle)
        assert len(self.pending(sink, job_named("app-10"))) == 1
        assert len(self.pending(sink, job_named("app-1", OTHER))) == 1
        assert len(self.pending(other)) == 1

    def test_all_of_a_jobs_name_are_listed_whatever_their_generation_and_sink(self) -> None:
        """Scenario 85: what nobody ends any more is found, and can be aborted by the sink that found it."""
        sink, removed = self.make_sink(), self.make_sink("removed sink")
        if type(sink).pending_of_job is TwoPhaseCommitSink.pending_of_job:
            return  # It does not list them, which the contract allows.
        contexts = [
            self.context(sink),
            self.context(sink, job=job_named("app-1", OTHER)),
            self.context(removed, epoch=3),
        ]
        for context in contexts:
            self.stage(removed if context.sink == removed.name else sink, context)
        self.stage(sink, self.context(sink, job=job_named("app-10")))
        found = {str(handle["transaction"]): handle for handle in self.make_sink().pending_of_job(self.job.name)}
        assert set(found) == {str(context.transaction) for context in contexts}
        for handle in found.values():
            sink.abort(handle)
        assert not list(sink.pending_of_job(self.job.name))
        assert len(self.pending(sink, job_named("app-10"))) == 1
        assert self.ids() == []

    def test_two_attempts_of_a_slot_do_not_meet(self) -> None:
        """Scenarios 27 and 33: one is committed, the other aborted, in either order of staging."""
        sink = self.make_sink()
        first = self.stage(sink, self.context(sink, attempt=1), version="lost")
        second = self.stage(sink, self.context(sink, attempt=2), version="won")
        sink.commit(second)
        sink.abort(first)
        assert {row["version"] for row in self.read_rows()} == {"won"}
        assert self.ids() == [0, 2]

    def test_a_zombie_that_stages_after_the_commit_stays_invisible(self) -> None:
        """Scenario 28."""
        sink = self.make_sink()
        sink.commit(self.stage(sink, self.context(sink)))
        late = self.context(sink, attempt=9)
        self.stage(sink, late)
        assert self.ids() == [0, 2]
        assert self.pending(sink) == {str(late.transaction)}

    def test_receipts_name_job_generation_epoch_slot_and_fingerprint(self) -> None:
        """Of all generations, because an unknown one tells that the checkpoint was replaced."""
        sink = self.make_sink()
        contexts = [self.context(sink, epoch=e, slot=s) for e, s in ((0, 0), (0, 1), (1, 0))]
        contexts.append(self.context(sink, epoch=0, job=job_named("app-1", OTHER)))
        contexts.append(self.context(sink, epoch=0, job=job_named("app-10")))
        for context in contexts:
            sink.commit(self.stage(sink, context))
        found = set(self.make_sink().receipts(self.job))
        assert found == {receipt_of(context) for context in contexts[:4]}

    def test_after_forgetting_a_late_commit_repeats_nothing(self) -> None:
        """Scenario 26: receipts may go, safety may not."""
        sink = self.make_sink()
        handles = []
        for epoch in range(4):
            handles.append(self.stage(sink, self.context(sink, epoch=epoch)))
            sink.commit(handles[-1])
        sink.forget(self.job, 3)
        sink.forget(self.job, 2)
        for handle in handles:
            assert sink.commit(handle) == AlreadyCommitted()
        assert self.ids() == [0, 2, 10, 12, 20, 22, 30, 32]
        assert {r.epoch for r in sink.receipts(self.job)} >= {3}

    def test_forgetting_does_not_silence_another_generation(self) -> None:
        """An accepted fresh start begins at epoch 0 again."""
        sink = self.make_sink()
        sink.commit(self.stage(sink, self.context(sink)))
        sink.forget(self.job, 1)
        fresh = self.stage(sink, self.context(sink, job=job_named("app-1", OTHER)))
        assert sink.commit(fresh) == Committed()
        assert self.ids() == [0, 0, 2, 2]

    def test_names_in_any_script_and_with_quotes(self) -> None:
        """Scenario 70."""
        job = job_named("Zähler '\"; DROP TABLE x; -- 数 .%_*")
        sink = self.make_sink("naïve 'sink' 🦆.%_")
        context = self.context(sink, job=job)
        handle = self.stage(sink, context)
        assert self.pending(sink, job) == {str(context.transaction)}
        assert sink.commit(handle) == Committed()
        assert sink.commit(handle) == AlreadyCommitted()
        assert set(sink.receipts(job)) == {receipt_of(context)}


def receipt_of(context: SlotContext) -> Receipt:
    """The receipt that a transaction must leave."""
    return Receipt(
        job=context.job.name,
        generation=context.job.generation,
        sink=context.sink,
        epoch=context.epoch,
        slot=context.slot,
        fingerprint=context.fingerprint,
    )
