"""*Publish*, one sink at a time: bring an epoch's slots to the target, again and again until it is done or hopeless."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

import pyarrow as pa

from onceward.contracts import (
    AlreadyCommitted,
    AnySink,
    Committed,
    Handle,
    Lost,
    Outcome,
    Receipt,
    RejectedRow,
    RetryLater,
    SlotValues,
    TransactionalWriteAheadSink,
    TryAgain,
    TwoPhaseCommitSink,
    WriteAheadSink,
)
from onceward.contracts.events import Delivered, Retried
from onceward.epoch.exits import output_lost
from onceward.epoch.limits import PublishLimits
from onceward.epoch.rejected_row_search import RejectedRowSearch
from onceward.epoch.run_context import RunContext, log
from onceward.epoch.watchdog import no_longer_than
from onceward.errors import OncewardError, PublishFailed, attributed
from onceward.identity import SinkName
from onceward.journal import Manifest, SinkEntry, SlotEntry
from onceward.logs import about
from onceward.wal import read_segment


@dataclass(frozen=True, slots=True)
class Outage:
    """A delivery that fails and is being repeated: why, and when it is tried again."""

    sink: SinkName
    epoch: int
    why: str
    next_try: datetime


class DeliveryEnded(Exception):
    """Raised by `before_retry`: something else is to be done first."""


class SinkDelivery:
    """Delivers for one run.

    `is_cancelled` is asked before each repetition: True ends the waiting at once. `on_failure` is called at each
    failure, `before_retry` before an attempt that failed is repeated: with True, if the sink has ever only asked to be
    called again later. An `OncewardError` or `DeliveryEnded` that it raises ends the delivery; by any other error the
    repetition has failed, too. While `owes_look`, it is called before the first attempt as well.
    """

    def __init__(
        self,
        context: RunContext,
        limits: PublishLimits | None = None,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
        on_failure: Callable[[], None] = lambda: None,
        before_retry: Callable[[bool], None] = lambda has_waited: None,
        owes_look: Callable[[], bool] = lambda: False,
    ) -> None:
        self._context = context
        self._limits = limits or PublishLimits()
        self._is_cancelled, self._on_failure, self._before_retry = is_cancelled, on_failure, before_retry
        self._owes_look = owes_look
        self._taken: tuple[int, Set[SinkName]] = (-1, frozenset())
        self.outage: Outage | None = None

    def deliver(self, sink: AnySink, entry: SinkEntry, manifest: Manifest) -> None:
        """Bring one sink's slots to the target. Without receipts where the epoch is `immediate`."""
        clock = self._context.clock
        began_at = clock.now()
        with about(epoch=manifest.epoch, sink=sink.name):
            self._deliver(sink, entry, manifest)
        self._taken = (manifest.epoch, {*(self._taken[1] if self._taken[0] == manifest.epoch else ()), sink.name})
        self._context.emit(Delivered(manifest.epoch, clock.now(), sink.name, began_at, len(entry.slots), entry.rows))

    def _deliver(self, sink: AnySink, entry: SinkEntry, manifest: Manifest) -> None:
        match sink:
            case TwoPhaseCommitSink():
                handles = [slot.handle for slot in entry.slots]
                self._until_done(partial(_commit_all, sink, handles), sink, manifest)
            case TransactionalWriteAheadSink():
                values = [slot_values(self._context, slot, sink, manifest) for slot in entry.slots]
                send = partial(_send_transaction, sink, values, manifest)
                search = partial(sink.find_rejected, values, manifest.job, manifest.epoch)
                self._until_done(send, sink, manifest, search=search)
            case WriteAheadSink():
                if sink.committer is not None:
                    sink.committer.open(manifest.job, sink.name)
                for slot in entry.slots:
                    read = slot_values(self._context, slot, sink, manifest).read
                    self._until_done(partial(_send_values, sink, slot.slot, read, manifest), sink, manifest)
            case _:
                assert_never(sink)

    def _until_done(
        self,
        attempt: Callable[[], Outcome],
        sink: AnySink,
        manifest: Manifest,
        *,
        search: Callable[[], Sequence[RejectedRow]] = tuple,
    ) -> None:
        """Repeat one delivery with growing pauses until it is done, hopeless, or past the deadline."""
        try:
            self._repeat(attempt, sink, manifest, search)
            if self.outage is not None:
                log.info("epoch %d: sink %r takes rows again", manifest.epoch, sink.name)
        finally:
            self.outage = None

    def _repeat(
        self,
        attempt: Callable[[], Outcome],
        sink: AnySink,
        manifest: Manifest,
        search: Callable[[], Sequence[RejectedRow]],
    ) -> None:
        clock, limits = self._context.clock, self._limits
        row_search = RejectedRowSearch(search, epoch=manifest.epoch, sink=sink.name)
        started, backoff, failure = clock.monotonic(), limits.backoff_s, ""
        must_look, has_waited = self._owes_look(), False
        while True:
            cause: Exception | None = None
            try:
                if must_look:
                    self._before_retry(has_waited)
                    must_look = False
                # One that begins just before the deadline gets a tenth of it: enough to tell slow from hanging.
                left_s = max(started + limits.deadline_s - clock.monotonic(), limits.deadline_s / 10)
                with no_longer_than(left_s), attributed(sink=sink.name, epoch=manifest.epoch):
                    outcome = attempt()
            except (OncewardError, DeliveryEnded):
                raise
            except Exception as error:
                why = str(error) if isinstance(error, TryAgain) else f"{type(error).__name__}: {error}"
                if must_look:
                    where = f" ({', '.join(error.__notes__)})" if hasattr(error, "__notes__") else ""
                    why = f"what the targets have cannot be looked at: {why}{where}"
                cause, outcome = error, RetryLater(why, after_s=backoff)
            match outcome:
                case Committed() | AlreadyCommitted():
                    return
                case Lost(why):
                    raise output_lost(why, sink, manifest)
                case RetryLater(why, after_s):
                    failure = why
                case _:
                    assert_never(outcome)
            if not must_look:
                # Else it was not this sink that failed.
                self._watch_transaction_age(sink, manifest, failure)
                row_search.after_failure(cause)
                must_look, has_waited = True, has_waited or cause is None
            self._on_failure()
            waited = clock.monotonic() - started
            if waited + after_s > limits.deadline_s or self._is_cancelled():
                raise PublishFailed(
                    f"the target did not take the epoch within {waited:.0f} s: {failure}",
                    epoch=manifest.epoch,
                    sink=sink.name,
                    hint="the epoch stays staged and is published first at the next start; check the target",
                ) from cause
            next_try = clock.now() + timedelta(seconds=after_s)
            self.outage = Outage(sink.name, manifest.epoch, failure, next_try)
            self._context.emit(Retried(manifest.epoch, clock.now(), sink.name, failure))
            log.warning("epoch %d, sink %r: %s; trying again in %.1f s", manifest.epoch, sink.name, failure, after_s)
            clock.pause(after_s)
            backoff = min(backoff * 2, limits.max_backoff_s)

    def _watch_transaction_age(self, sink: AnySink, manifest: Manifest, failure: str) -> None:
        """A transaction that the target will forget must not be waited for in silence. One that was committed is not
        waited for, and of a settled epoch it is there again: how old it is where it came from, nobody knows."""
        if not isinstance(sink, TwoPhaseCommitSink) or sink.transaction_timeout_s is None:
            return
        was_taken = self._taken[0] == manifest.epoch and sink.name in self._taken[1]
        if was_taken or manifest.epoch <= self._context.watermark():
            return
        age = (self._context.clock.now() - manifest.created_at).total_seconds()
        if age > sink.transaction_timeout_s:
            raise output_lost(
                f"its transactions are {age:.0f} s old and time out at {sink.transaction_timeout_s:.0f} s; {failure}",
                sink,
                manifest,
            )
        if age > sink.transaction_timeout_s * sink.transaction_timeout_warning:
            log.warning(
                "epoch %d, sink %r: transactions are %.0f s old and time out at %.0f s",
                manifest.epoch,
                sink.name,
                age,
                sink.transaction_timeout_s,
            )


def slot_values(context: RunContext, slot: SlotEntry, sink: AnySink, manifest: Manifest) -> SlotValues:
    """One slot of a write-ahead sink as it goes to the target: without the rows that the user took out of it."""
    receipt = Receipt(
        job=manifest.job.name,
        generation=manifest.job.generation,
        sink=sink.name,
        epoch=manifest.epoch,
        slot=slot.slot,
        fingerprint=manifest.fingerprint,
    )
    read = partial(read_segment, context.storage, slot.handle) if slot.rows else partial(iter, ())
    diverted = context.diverted.get((manifest.epoch, sink.name))
    if diverted is not None and (left_out := diverted.rows.get(slot.transaction)):
        read = partial(_without, read, frozenset(left_out))
    return SlotValues(slot.slot, slot.rows, None if manifest.immediate else receipt, read)


def _commit_all(sink: TwoPhaseCommitSink[object], handles: Sequence[Handle]) -> Outcome:
    """All slots' outcomes as one: the first that is no success."""
    outcomes = sink.commit_all(handles)
    failed = (outcome for outcome in outcomes if not isinstance(outcome, (Committed, AlreadyCommitted)))
    return next(failed, Committed() if len(outcomes) == len(handles) else RetryLater("commit_all left slots out"))


def _send_transaction(sink: TransactionalWriteAheadSink, values: Sequence[SlotValues], manifest: Manifest) -> Outcome:
    sent = sink.send_transaction(values, manifest.job, manifest.epoch, manifest.timestamp)
    return Committed() if sent else RetryLater("send_transaction returned False")


def _send_values(
    sink: WriteAheadSink, slot: int, read: Callable[[], Iterator[pa.RecordBatch]], manifest: Manifest
) -> Outcome:
    committer = None if manifest.immediate else sink.committer
    if committer is not None and committer.is_checkpoint_committed(slot, manifest.epoch):
        return AlreadyCommitted()
    if not sink.send_values(read(), manifest.epoch, manifest.timestamp):
        return RetryLater("send_values returned False")
    if committer is not None:
        committer.commit_checkpoint(slot, manifest.epoch)
    return Committed()


def _without(read: Callable[[], Iterator[pa.RecordBatch]], left_out: frozenset[int]) -> Iterator[pa.RecordBatch]:
    """The batches without these rows, which are counted over all of them."""
    first = 0
    for batch in read():
        numbers = range(first, first + batch.num_rows)
        first += batch.num_rows
        if left_out.isdisjoint(numbers):
            yield batch
        elif kept := [index for index, number in enumerate(numbers) if number not in left_out]:
            yield batch.take(pa.array(kept))
