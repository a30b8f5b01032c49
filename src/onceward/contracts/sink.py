"""The two templates a sink is written by, and the third that makes the second one exactly-once.

A sink is picklable configuration, checked in its constructor. It opens connections only inside the methods that use
them, because the same object travels to the executors and lives on the driver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from onceward.contracts.committer import CheckpointCommitter
from onceward.contracts.context import Handle, Receipt, RejectedRow, SlotContext, SlotValues
from onceward.contracts.finding import Finding, Workload
from onceward.contracts.guarantee import Guarantee
from onceward.contracts.outcome import Outcome, RetryLater
from onceward.contracts.repeated import Repeated
from onceward.identity import JobIdentity, JobName, SinkName, checked_name

if TYPE_CHECKING:
    import pyarrow as pa

Txn = TypeVar("Txn")


class Sink(ABC):  # noqa: B024 (abstract through its three templates)
    """What every sink has: a stable name, an honest guarantee, a check, and receipts."""

    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    """The most this sink can give."""
    mechanism: ClassVar[str] = ""
    """How it gives that, in a few words; shown by `onceward status` and in the docs."""
    takes_empty_epochs: bool = False
    """True: an epoch without rows is published too, as one slot without rows, by a transactional write-ahead sink that
    replaces what the target has."""
    receipts_are_output: bool = False
    """True: the receipts are the output itself (names of files), which people may compact or remove once it is settled.
    Only those of the newest epoch are then expected to stay."""
    repeated: Repeated = Repeated.DUPLICATES
    """What becomes of rows that the target has, if they are delivered again by a job that was taken back on purpose."""
    alternate: AnySink | None = None
    """The same target by the other template, of the same name: publishes what an earlier run staged that way."""

    def __init__(self, *, name: str) -> None:
        self.name = SinkName(checked_name("sink", name))

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Driver, before anything moves, at every start: raise `TargetRefused` if these rows cannot be taken.

        It may create what is missing where the sink's options say so. It never writes rows.
        """
        return None

    def diagnose(self, workload: Workload) -> Iterable[Finding]:
        """Driver, after `check`, at every start and by `onceward doctor`: what is fine and what may give trouble later.

        It changes nothing. What would give trouble at once is for `check` to refuse; an exception here is logged, and
        stops nothing.
        """
        return ()

    def shared_folders(self) -> Sequence[str]:
        """Driver, at a run's first epoch: folders that driver and executors must see as one and the same.

        On a cluster a small file is put into each, under a name that begins with a dot, looked for by the executors,
        and removed. The folders must be there after `check`.
        """
        return ()

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """Driver, at every start: the receipts the target holds for this job's name and this sink.

        All generations, because one that the checkpoint does not know tells that the checkpoint was replaced. Those
        below the target's own watermark may be missing. A sink without receipts yields none.
        """
        return ()

    def receipts_at(self) -> str:
        """Driver, at every start, after `check`: where in the target the receipts stand (schema, prefix, topic and its
        id), so that a change is noticed while epochs are unsettled. May ask the target. Empty: it cannot change."""
        return ""

    def target_facts(self) -> Mapping[str, str]:
        """Driver, at every start, after `check`: what in the target this sink's promises rest on, by names that a
        person understands (the engine of a table, its unique indexes, an eviction policy, a topic's id).

        They are kept in every manifest. A sink looks at them again where it relies on them, best inside the very
        transaction, and raises `TargetChanged` when they are no longer so. None: it relies on nothing that can change.
        """
        return {}

    @property
    def keeps_receipts(self) -> bool:
        """Whether there are receipts to be missed: a sink without any says nothing about what its target has."""
        return type(self).receipts is not Sink.receipts

    def forget(self, job: JobIdentity, below: int) -> None:
        """Driver, now and then: epochs below are settled; receipts of them may go, if the target remembers `below`."""
        return None


class TwoPhaseCommitSink(Sink, Generic[Txn]):
    """Rows wait in transactions of the target itself until the decision.

    Not promised: that a begun transaction is ever pre-committed, or that a pre-committed one is committed or aborted
    by the process that made it. Several attempts of one slot may be open at the same time.
    """

    mechanism = "two-phase commit"
    transaction_timeout_s: float | None = None
    """How long the target keeps a pre-committed transaction; None for ever."""
    transaction_timeout_warning: float = 0.8
    """Warn when a transaction that waits for its commit has used up this fraction of the time-out."""

    @abstractmethod
    def begin_transaction(self, context: SlotContext) -> Txn:
        """Executor, once per attempt that has rows. The target must know it as `context.transaction`."""

    @abstractmethod
    def invoke(self, transaction: Txn, batch: pa.RecordBatch) -> None:
        """Executor, many times: add rows, invisible to every reader."""

    @abstractmethod
    def pre_commit(self, transaction: Txn) -> Handle:
        """Executor, once: afterwards the rows are durable and still invisible, and any process can commit them."""

    @abstractmethod
    def commit(self, handle: Handle) -> Outcome:
        """Driver, after the decision, and again after any crash or lost reply: make the rows visible, once.

        `handle` is what `pre_commit` returned, with `transaction` added. An exception means "unknown": it is tried
        again.
        """

    def verify(self, handles: Sequence[Handle]) -> Sequence[str | None]:
        """Driver, once an epoch, when all slots are pre-committed and before anything is decided: is it all there?

        For each handle, in their order, None, or a sentence that says what of it the target, seen from here, does not
        hold whole, and where that was looked for. The epoch then fails and is aborted. It changes nothing, and need not
        read the rows again. An exception means "unknown" and fails the epoch too. As it stands it believes everything.
        """
        return [None] * len(handles)

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """Driver: `commit` for all slots of an epoch, in their order; repeated as a whole if one did not succeed. As it
        stands it goes no further than one that is to be tried again later: the target may have gone away.

        Override it where the target takes them together at less cost. A crash may still leave some committed and
        others not.
        """
        outcomes: list[Outcome] = []
        for handle in handles:
            outcomes.append(self.commit(handle))
            if isinstance(outcomes[-1], RetryLater):
                break
        return outcomes

    @abstractmethod
    def abort(self, handle: Handle) -> None:
        """Driver, any number of times, also when nothing is left: remove what was staged. Never what was committed."""

    @abstractmethod
    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        """Driver: every transaction of this job, generation and sink that is begun and not finished.

        Each handle must carry its name under `transaction`; what does not parse as one of ours must be left alone.
        Under `since` it may carry, in ISO 8601 with zone, when the transaction was begun or pre-committed.
        """

    def pending_of_job(self, name: JobName) -> Iterable[Handle]:
        """Driver, at every start and by `onceward transactions list --all`: the same for a job's name alone.

        Of every generation, and of every sink that this target holds transactions of, so that those which nobody ends
        any more are found. `abort` must take each of these handles. A sink that cannot list them yields none.
        """
        return ()

    def discard(self, transaction: Txn) -> None:
        """Executor, after a failure, at best once: let go of an unfinished transaction. The reaper finds the rest."""
        return None


class WriteAheadSink(Sink):
    """Rows wait in onceward's own log until the decision, then go out slot by slot.

    With a committer beside the target this is at-least-once: a crash inside `send_values`, or between it and the
    committer, sends the slot again.
    """

    guarantee = Guarantee.AT_LEAST_ONCE
    mechanism = "write-ahead log, committer beside the target"
    committer: CheckpointCommitter | None
    """Remembers each slot that was sent. None: only the settled watermark remembers, and only whole epochs."""

    @abstractmethod
    def send_values(self, values: Iterator[pa.RecordBatch], checkpoint_id: int, timestamp: datetime) -> bool:
        """Driver, once per slot that is not committed yet; `timestamp` is the same on every repetition.

        False, or an exception, leaves this epoch and every later one waiting, in order.
        """


class TransactionalWriteAheadSink(Sink):
    """Rows wait in onceward's own log until the decision, then go out *together with their receipt*.

    Exactly-once, because "was it sent?" is answered by the target itself.
    """

    mechanism = "write-ahead log, receipt in the target's transaction"

    @abstractmethod
    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """Driver, again after any crash or lost reply. In ONE transaction of the target, and in this order:

        leave out every slot whose receipt the target has, or whose epoch is not above the target's own watermark for
        (job, sink); write the rows of the others; write their receipts; commit. Slots without a receipt are written
        as they are. False, or an exception, leaves this epoch and every later one waiting. `RowsRejected` and
        `TargetChanged` say that waiting will not help, `TryAgain` that it will. After a few failures of any other kind
        `find_rejected` is asked.
        """

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        """Driver, when a user asks, and after failures that nobody can explain: which rows the target does not take.

        It is left as it was. Without the rows that are named, the others must be taken. An exception says that it is
        not a matter of rows.
        """
        return ()


class TemplateChoice(Sink):
    """One target that can be served by more than one template; which one is settled at every start."""

    @abstractmethod
    def choose(self) -> AnySink:
        """Driver, at every start, before anything else: the sink to work with. May ask the target what it allows.

        It has this one's name. Where an earlier start may have chosen otherwise, its `alternate` is set, and the two
        keep their receipts in one place.
        """


AnySink = TwoPhaseCommitSink[Any] | WriteAheadSink | TransactionalWriteAheadSink
"""The closed set of templates; the protocol matches on it."""
