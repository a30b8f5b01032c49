"""One producer that owns a transactional id, and what it knows of the receipts.

What keeps two of them apart, in every interleaving:

- *Opening* first takes the id (`init_transactions`): the broker fences whoever had it, and finishes what that one left,
  by abort, or by commit where the commit was already under way. Only then are the receipts read. So a receipt that is
  not found then will never come to be, unless a third one takes the id, and then every commit of ours fails.
- *Publishing* trusts what it read and what it has committed since: nobody else can have added a receipt of this job,
  generation and sink without taking the id.
- *Any failure* ends the session. Whether the transaction is in (a commit whose answer was lost, a time-out of the
  broker's, a fencing) is not guessed: the next session takes the id anew and reads.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from onceward.contracts import Receipt, RejectedRow, SlotValues
from onceward.errors import CheckpointRolledBack, RowsRejected
from onceward.identity import Fingerprint, JobIdentity, SinkName
from onceward.sinks.kafka.client import Client, KafkaFailed, take_id
from onceward.sinks.kafka.cluster import PARTITION_OF_RECEIPTS, Cluster
from onceward.sinks.kafka.columns import Choice, columns_of
from onceward.sinks.kafka.encode import Records, records_of
from onceward.sinks.kafka.fitting import DEFAULT_MAX_BYTES, Topic, misfits
from onceward.sinks.kafka.ledger import Record
from onceward.sinks.kafka.producer import Producer
from onceward.sinks.kafka.settings import Settings, driver

_ABORT_WITHIN_S = 5.0
_ROWS_AT_ONCE = 10_000
_FLUSH_S = 1.0


class Topics:
    """What is known of the topics that rows go to; asked for when a new one turns up."""

    def __init__(self, cluster: Cluster, known: Iterable[Topic], receipts_topic: str) -> None:
        self._cluster = cluster
        self._known: dict[str, Topic | None] = {topic.name: topic for topic in known if topic.name != receipts_topic}
        self._receipts_topic = receipts_topic

    def get(self, name: str) -> Topic | None:
        """The topic, or None when there is none; one that was missing is asked for again."""
        if name == self._receipts_topic:
            return Topic(name, 1, closed=f"topic {name!r} is that of the receipts")
        if self._known.get(name) is None:
            described = self._cluster.describe([name]).get(name)
            self._known[name] = None if described is None else described.topic
        return self._known[name]


class SmallerBatches(Exception):
    """A topic takes less than the batches of this session; the next one is to make them no larger than `size`."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a topic takes batches of {size} bytes only; trying again with such")
        self.size = size


class Session:
    """Opened for one job and sink; ends at its first failure."""

    def __init__(
        self,
        settings: Settings,
        job: JobIdentity,
        sink: SinkName,
        *,
        choice: Choice,
        receipts_topic: str,
        batch_bytes: int,
    ) -> None:
        self.job = job
        self._settings, self._receipts_topic, self._choice = settings, receipts_topic, choice
        self._client = Client(settings, "publishing")
        self._cluster = Cluster(settings)
        self._producer: Any = None
        self._is_committing = False
        try:
            self._topics = Topics(self._cluster, self._find_topics(), receipts_topic)
            self._batch_bytes = min(batch_bytes, self._largest_batch())
            config = settings.producer(settings.transactional_id(job, sink), batch_bytes=self._batch_bytes)
            self._producer = self._client.make(Producer, config)
            with self._client.watched():
                take_id(self._producer, receipts_topic, settings.timeout_s)
            patience_s = settings.transaction_timeout_s + settings.timeout_s
            self.ledger = self._cluster.read_ledger(receipts_topic, job.name, sink, patience_s=patience_s)
        except BaseException:
            self.close()
            raise

    def _find_topics(self) -> list[Topic]:
        """The topic of all rows, if there is one, and that of the receipts, which is made if it is missing."""
        names = [name for name in (self._choice.topic, self._receipts_topic) if name is not None]
        found = self._cluster.describe(names)
        if self._receipts_topic not in found:
            self._cluster.create_for_receipts(self._receipts_topic, found.get(self._choice.topic or ""))
        return [described.topic for described in found.values()]

    def _largest_batch(self) -> int:
        """The client makes batches without regard to what the topic takes; one that is too large fails as a whole."""
        topic = self._topics.get(self._choice.topic) if self._choice.topic is not None else None
        return DEFAULT_MAX_BYTES if topic is None or topic.max_bytes is None else topic.max_bytes

    def close(self) -> None:
        """Let go of everything, without a word to the brokers: what is open there ends when the id is taken again."""
        self._client.close()
        self._cluster.close()

    def waiting(self, slots: Sequence[SlotValues], epoch: int) -> list[SlotValues]:
        """Those that have no receipt yet, or are to have none."""
        found = self.ledger.slots(self.job.generation, epoch)
        is_settled = epoch <= self.ledger.settled(self.job.generation)
        waiting = []
        for slot in slots:
            if slot.receipt is not None:
                refuse_another(found.get(slot.slot), slot.receipt)
                if slot.slot in found or is_settled:
                    continue
            waiting.append(slot)
        return waiting

    def find_rejected(self, slots: Sequence[SlotValues]) -> list[RejectedRow]:
        """Nothing is sent for it."""
        found: dict[tuple[int, int], str] = {}
        for slot in slots:
            for first, records in self._records(slot):
                for row, why in misfits(records, self._topics.get):
                    found.setdefault((slot.slot, first + row), why)
        return [RejectedRow(slot, row, why) for (slot, row), why in sorted(found.items())]

    # --- one transaction --------------------------------------------------------------------------

    def publish(self, slots: Sequence[SlotValues]) -> None:
        """The rows of these slots and their receipt, if they are to have one."""
        receipts = [slot.receipt for slot in slots if slot.receipt is not None]
        rows = sum(slot.rows for slot in slots)
        record = self.ledger.receipt(receipts, rows) if receipts else None
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
            self.ledger.add(*record)

    def forget(self, below: int) -> None:
        """Raise the watermark in the topic, and let receipts below it go: together."""
        records = self.ledger.watermark(self.job.generation, below)
        if not records:
            return
        with self._transaction():
            self._send_receipts(records)
        for record in records:
            self.ledger.add(*record)
        self.ledger.drop_settled(self.job, below)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._client.watched():
            self._producer.begin_transaction()
        try:
            yield
            self._flush()
        except Exception:
            # So that readers of the topics need not wait for the time-out. Where it fails, they have to.
            # What is on its way is waited for: brokers without KIP-890 take a record that comes behind the abort for
            # one of the next transaction, and a reader would get it twice.
            with contextlib.suppress(Exception):
                self._producer.purge()
                self._producer.abort_transaction(_ABORT_WITHIN_S)
            raise
        self._is_committing = True
        with self._client.watched():
            self._producer.commit_transaction(self._settings.timeout_s)
        self._is_committing = False

    def _flush(self) -> None:
        """Every record is at the brokers, or has failed. Slow brokers get time, those that take nothing do not."""
        where = f"topic {self._choice.topic!r}" if self._choice.topic is not None else "the topics of the rows"
        left, since = len(self._producer), time.monotonic()
        self._raise_undelivered()
        while left:
            with self._client.watched():
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
        )

    # --- records ----------------------------------------------------------------------------------

    def _send(self, slot: SlotValues) -> None:
        for first, records in self._records(slot):
            for row, why in misfits(records, self._topics.get):
                raise _rejected(slot, first + row, why)
            self._refuse_smaller_topics(records)
            self._produce(records)

    def _records(self, slot: SlotValues) -> Iterator[tuple[int, Records]]:
        """Some rows of the slot as records, and the number of the first of them."""
        first = 0
        for batch in slot.read():
            columns = columns_of(self._choice, batch.schema)
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
        with self._client.watched():
            for topic, those in records.by_topic():
                self._producer.send(topic, those)
            self._producer.poll(0)
        self._raise_undelivered()

    def _send_receipts(self, records: Sequence[Record]) -> None:
        keys, values = (pa.array(part, pa.binary()) for part in zip(*records, strict=True))
        places = pa.array([PARTITION_OF_RECEIPTS] * len(records), pa.int32())
        with self._client.watched():
            self._producer.send(self._receipts_topic, Records(self._receipts_topic, keys, values, places))

    def _raise_undelivered(self) -> None:
        if undelivered := self._producer.undelivered:
            # One that was thrown away because another failed says less than that other, and a receipt less than a row.
            code, why, topic = min(
                undelivered, key=lambda one: (one[0] in _thrown_away(), one[2] == self._receipts_topic)
            )
            raise self._client.failed(f"a record for topic {topic!r} was not taken: {why}", code)


def _thrown_away() -> tuple[int, ...]:
    errors = driver().KafkaError
    return (errors._PURGE_QUEUE, errors._PURGE_INFLIGHT)


def refuse_another(found: Fingerprint | None, receipt: Receipt) -> None:
    """A receipt of this slot that is not for this epoch's rows tells that the checkpoint went back."""
    if found is not None and found != receipt.fingerprint:
        raise CheckpointRolledBack(
            f"the receipt of slot {receipt.slot} is that of another epoch {receipt.epoch}: this checkpoint was rolled "
            "back",
            hint="start from the checkpoint that wrote it, or from a savepoint",
        )


def _rejected(slot: SlotValues, row: int, why: str) -> RowsRejected:
    return RowsRejected(
        f"row {row} of slot {slot.slot} cannot be sent: {why}",
        hint="mend the topic, or see the rows with `onceward poison show FILE` and take them out with "
        "`onceward poison divert FILE --to FOLDER`; the epoch stays staged",
    )
