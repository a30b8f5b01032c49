"""One producer that owns a transactional id, and what it knows of the receipts.

What keeps two of them apart, in every interleaving:

- *Opening* first takes the id (`init_transactions`): the broker fences whoever had it, and finishes what that one left,
  by abort, or by commit where the commit was already under way. Only then are the receipts read. So a receipt that is
  not found then will never come to be, unless a third one takes the id, and then every commit of ours fails.
- *Publishing* trusts what it read and what it has committed since: nobody else can have added a receipt of this job,
  generation and sink without taking the id.
- *Under another id*, because `id_prefix` was changed, nobody can publish unseen: see `announce`.
- *Any failure* ends the session. Whether the transaction is in (a commit whose answer was lost, a time-out of the
  broker's, a fencing) is not guessed: the next session takes the id anew and reads.
- *What was aborted* stays so. A broker that was killed may have lost the end of a transaction, and then the next one of
  this producer would end it, too. So nothing is sent to a topic before all has ended that a predecessor can have left
  there, and nothing counts as committed before its receipt can be read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from onceward.connections.kafka import driver
from onceward.contracts import RejectedRow, SlotValues, TryAgain
from onceward.errors import TargetRefused
from onceward.identity import JobIdentity, SinkName
from onceward.sinks.kafka.client import Client, claim_from, claim_transactional_id
from onceward.sinks.kafka.cluster import PARTITION_OF_RECEIPTS, Cluster
from onceward.sinks.kafka.compatibility import fitting_columns
from onceward.sinks.kafka.encode import Records, records_of
from onceward.sinks.kafka.errors import KafkaFailed, row_rejected
from onceward.sinks.kafka.facts import TargetFacts
from onceward.sinks.kafka.limits import DEFAULT_MAX_BYTES, Misfit, misfits
from onceward.sinks.kafka.options import Options
from onceward.sinks.kafka.receipts import Receipts, Record
from onceward.sinks.kafka.topics import Topics
from onceward.sinks.receipts import slots_to_send

_ABORT_WITHIN_S = 5.0
_ROWS_AT_ONCE = 10_000
_FLUSH_S = 1.0


class SmallerBatches(TryAgain):
    """A topic takes less than the batches of this session; the next one is to make them no larger than `size`."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a topic takes batches of {size} bytes only; trying again with such")
        self.size = size


class Session:
    """Opened for one job and sink; ends at its first failure."""

    def __init__(
        self,
        options: Options,
        job: JobIdentity,
        sink: SinkName,
        *,
        facts: TargetFacts,
        batch_bytes: int,
    ) -> None:
        self.job = job
        settings = options.settings
        self._sink, self._choice = sink, options.choice
        self._settings, self._receipts_topic = settings, options.receipts_topic
        self._id = settings.transactional_id(job, sink)
        self._client = Client(settings, "publishing")
        self._cluster = Cluster(settings)
        self._producer: Any = None
        self._is_committing = self._is_announced = False
        self._partitions: dict[str, int] = {}
        self._clear: set[str] = set()
        try:
            self._topics = Topics(self._cluster, facts, always=options.choice.topic)
            self._topics.look()
            self._is_fresh = True
            self._batch_bytes = min(batch_bytes, self._largest_batch())
            self._producer = self._client.make_producer(self._id, batch_bytes=self._batch_bytes)
            with self._client.raising_kafka_failed():
                claim_transactional_id(self._producer, self._receipts_topic, settings.timeout_s)
            self._end_what_others_left_open()
            self.receipts = self._read_receipts()
            self._fence_others()
        except BaseException:
            self.close()
            raise

    def _read_receipts(self, *, read_committed: bool = True) -> Receipts:
        patience_s = self._settings.transaction_timeout_s + self._settings.timeout_s
        return self._cluster.read_receipts(
            self._receipts_topic, self.job.name, self._sink, patience_s=patience_s, read_committed=read_committed
        )

    # --- who may publish --------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Look at the topics again, unless the session was opened for this epoch."""
        if not self._is_fresh:
            self._topics.look()
        self._is_fresh = False

    def announce(self) -> None:
        """Nothing is published under an id that a later driver would not find, and under no other id from here on.

        Of two that announce, the second finds the first, takes its id, and reads what it has committed. One that takes
        its own id back after that finds the second. An announcement is withdrawn only by one that has taken that id
        since its own announcement, in a transaction of its own: whoever takes the id back fences it first and reads
        then, and so sees that it has to announce itself again.
        """
        if self._is_announced:
            return
        generation = self.job.generation
        while self._id not in self.receipts.ids(generation):
            self._write([self.receipts.announcement(generation, self._id)])
            self.receipts = self._read_receipts()
            self._fence_others()
        if others := self.receipts.ids(generation) - {self._id}:
            self._write([self.receipts.withdrawal(generation, other) for other in sorted(others)])
        self._is_announced = True

    def _end_what_others_left_open(self) -> None:
        """A predecessor that died or stands still under another id would hold up the receipts until its time-out."""
        if self._cluster.is_held_up(self._receipts_topic):
            ids = self._read_receipts(read_committed=False).ids(self.job.generation)
            for other in sorted(ids - {self._id}):
                # No more than a favour: what counts is what is read committed.
                with contextlib.suppress(KafkaFailed, TargetRefused):
                    claim_from(other, self._settings, self._receipts_topic)

    def _fence_others(self) -> None:
        """Take every other id under which somebody may publish the same epochs: `id_prefix` may have been changed."""
        taken: set[str] = set()
        while others := self.receipts.ids(self.job.generation) - {self._id} - taken:
            for other in sorted(others):
                claim_from(other, self._settings, self._receipts_topic)
            taken |= others
            self.receipts = self._read_receipts()

    def _write(self, records: Sequence[Record]) -> None:
        """Into the topic of the receipts, together."""
        with self._transaction():
            self._send_receipts(records)
        self._see_receipts()
        for record in records:
            self.receipts.add(*record)

    def _largest_batch(self) -> int:
        """The client makes batches without regard to what the topic takes; one that is too large fails as a whole."""
        topic = self._topics.get(self._choice.topic) if self._choice.topic is not None else None
        return DEFAULT_MAX_BYTES if topic is None or topic.max_bytes is None else topic.max_bytes

    def close(self) -> None:
        """Let go of everything, without a word to the brokers: what is open there ends when the id is taken again."""
        self._client.close()
        self._cluster.close()

    def without_receipt(self, slots: Sequence[SlotValues], epoch: int) -> list[SlotValues]:
        """Those that have no receipt yet, or are to have none."""
        found = self.receipts.slots(self.job.generation, epoch)
        return slots_to_send(slots, found.items(), settled=self.receipts.watermark(self.job.generation))

    def misfits(self, slot: SlotValues) -> Iterator[Misfit]:
        """The rows of a slot that their topics will not take, and why. Nothing is sent for it."""
        for first, records in self._records(slot):
            self._topics.know(records.names())
            for row, why in misfits(records, self._topics.get):
                yield Misfit(first + row, why)

    def try_out(self, slot: SlotValues) -> None:
        """Send the rows as if they were to be published, then abort: no `read_committed` reader sees them."""
        self._wait_for_open_transactions(self._choice.topic)
        with self._client.raising_kafka_failed():
            self._producer.begin_transaction()
        with self._aborted_on_failure():
            for _, records in self._records(slot):
                self._produce(records)
            self._flush()
        with self._client.raising_kafka_failed():
            self._producer.abort_transaction(self._settings.timeout_s)
        self._clear.clear()

    # --- one transaction --------------------------------------------------------------------------

    def publish(self, slots: Sequence[SlotValues]) -> None:
        """The rows of these slots and their receipt, if they are to have one."""
        receipts = [slot.receipt for slot in slots if slot.receipt is not None]
        rows = sum(slot.rows for slot in slots)
        record = self.receipts.receipt(receipts, rows) if receipts else None
        self._wait_for_open_transactions(self._choice.topic)
        started = time.monotonic()
        try:
            with self._transaction():
                for slot in slots:
                    self._send(slot)
                if record is not None:
                    self._send_receipts([record])
        except KafkaFailed as failed:
            raise self._explained(failed, time.monotonic() - started) from None
        if record is not None:
            self._see_receipts()
            self.receipts.add(*record)

    def forget(self, below: int) -> None:
        """Raise the watermark in the topic, and let receipts below it go: together."""
        records = self.receipts.raised_watermark(self.job.generation, below)
        if not records:
            return
        self._write(records)
        self.receipts.drop_settled(self.job, below)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._client.raising_kafka_failed():
            self._producer.begin_transaction()
        with self._aborted_on_failure():
            yield
            self._flush()
        self._is_committing = True
        with self._client.raising_kafka_failed():
            self._producer.commit_transaction(self._settings.timeout_s)
        self._is_committing = False

    @contextlib.contextmanager
    def _aborted_on_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # So that readers of the topics need not wait for the time-out. Where it fails, they have to.
            # What is on its way is waited for: brokers without KIP-890 take a record that comes behind the abort for
            # one of the next transaction, and a reader would get it twice.
            with contextlib.suppress(Exception):
                self._producer.purge()
                self._producer.abort_transaction(_ABORT_WITHIN_S)
            # Once the brokers have refused a record, the client takes no other one, and of those says nothing else. The
            # reason may come later than that, but not later than the end of the transaction.
            if isinstance(error, KafkaFailed) and error.code == driver().KafkaError._STATE:
                self._raise_refused()
            raise

    def _flush(self) -> None:
        """Every record is at the brokers, or has failed. Slow brokers get time, those that take nothing do not."""
        where = f"topic {self._choice.topic!r}" if self._choice.topic is not None else "the topics of the rows"
        left, since = len(self._producer), time.monotonic()
        self._raise_undelivered()
        while left:
            with self._client.raising_kafka_failed():
                now = self._producer.flush(_FLUSH_S)
            self._raise_undelivered()
            if now < left:
                left, since = now, time.monotonic()
            elif time.monotonic() - since > self._settings.timeout_s:
                raise self._client.failed(
                    f"{left} records for {where} were not taken within {self._settings.timeout_s:g} s"
                )

    def _explained(self, failed: KafkaFailed, took_s: float) -> KafkaFailed:
        """A broker that ended the transaction for its age tells the client only that somebody else has the id."""
        if took_s < self._settings.transaction_timeout_s:
            return failed
        return KafkaFailed(
            f"{failed}; the transaction took {took_s:.0f} s, longer than transaction_timeout_s "
            f"({self._settings.transaction_timeout_s:g} s): "
            + ("the receipts will tell whether it is in" if self._is_committing else "nothing of it is visible"),
            failed.code,
            topic=failed.topic,
        )

    # --- records ----------------------------------------------------------------------------------

    def _send(self, slot: SlotValues) -> None:
        for first, records in self._records(slot):
            self._topics.know(records.names())
            for row, why in misfits(records, self._topics.get):
                raise row_rejected(RejectedRow(slot.slot, first + row, why))
            self._refuse_smaller_topics(records)
            self._produce(records)

    def _records(self, slot: SlotValues) -> Iterator[tuple[int, Records]]:
        """Some rows of the slot as records, and the number of the first of them."""
        first = 0
        for batch in slot.read():
            columns = fitting_columns(self._choice, batch.schema)
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                yield first + start, records_of(batch.slice(start, _ROWS_AT_ONCE), columns)
            first += batch.num_rows

    def _refuse_smaller_topics(self, records: Records) -> None:
        """With one fixed topic this was seen when the session was opened."""
        for name in records.names():
            topic = self._topics.get(name) if name is not None else None
            if topic is not None and topic.max_bytes is not None and topic.max_bytes < self._batch_bytes:
                raise SmallerBatches(topic.max_bytes)

    def _produce(self, records: Records) -> None:
        with self._client.raising_kafka_failed():
            for topic, those in records.by_topic():
                self._wait_for_open_transactions(topic)
                self._make_known(topic)
                self._producer.send(topic, those)
            self._producer.poll(0)
        self._raise_undelivered()

    def _wait_for_open_transactions(self, name: str | None) -> None:
        """Once a session for each topic, before anything of ours stands in it. Topics that rows name are known only
        when a transaction has begun: a wait that times out then aborts it, and all is tried again."""
        topic = self._topics.get(name) if name is not None and name not in self._clear else None
        if topic is not None:
            self._cluster.wait_for_open_transactions(topic.name, range(topic.partitions))
            self._clear.add(topic.name)

    def _see_receipts(self) -> None:
        """The brokers confirm a commit before any partition has it."""
        self._cluster.wait_for_open_transactions(self._receipts_topic, [PARTITION_OF_RECEIPTS])

    def _make_known(self, name: str) -> None:
        """The client would learn of partitions that were added within minutes, and refuse their records until then."""
        topic = self._topics.get(name)
        partitions = topic.partitions if topic is not None else 0
        if self._partitions.setdefault(name, partitions) != partitions:
            self._producer.refresh_metadata(name, self._settings.timeout_s)
            self._partitions[name] = partitions

    def _send_receipts(self, records: Sequence[Record]) -> None:
        keys, values = (pa.array(part, pa.binary()) for part in zip(*records, strict=True))
        places = pa.array([PARTITION_OF_RECEIPTS] * len(records), pa.int32())
        with self._client.raising_kafka_failed():
            self._producer.send(self._receipts_topic, Records(self._receipts_topic, keys, values, places))

    def _raise_undelivered(self) -> None:
        self._raise_refused()
        for (code, topic), why in self._producer.undelivered.items():
            raise self._not_taken(code, topic, why)

    def _raise_refused(self) -> None:
        """One that was thrown away because another failed says less than that other, and a receipt less than a row."""
        refused = [one for one in self._producer.undelivered.items() if one[0][0] not in _thrown_away()]
        for (code, topic), why in sorted(refused, key=lambda one: one[0][1] == self._receipts_topic):
            raise self._not_taken(code, topic, why)

    def _not_taken(self, code: int, topic: str, why: str) -> KafkaFailed:
        return self._client.failed(f"a record for topic {topic!r} was not taken: {why}", code, topic=topic)


def _thrown_away() -> tuple[int, ...]:
    errors = driver().KafkaError
    return (errors._PURGE_QUEUE, errors._PURGE_INFLIGHT)
