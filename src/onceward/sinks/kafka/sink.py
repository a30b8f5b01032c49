"""Records in Kafka topics.

Write-ahead: the rows of an epoch and their receipt, a record of a compacted topic, go out in one Kafka transaction, on
the driver, after the decision. No transaction stays open across epochs, so none can time out while it waits for one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Literal, NoReturn

import pyarrow as pa

from onceward.connections.kafka import Setting, driver
from onceward.contracts import Finding, Receipt, RejectedRow, SlotValues, TransactionalWriteAheadSink, Workload
from onceward.errors import ConfigurationError, attributed
from onceward.identity import JobIdentity, default_sink_name
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.kafka.cluster import Cluster
from onceward.sinks.kafka.columns import columns_of
from onceward.sinks.kafka.compatibility import refuse_stream
from onceward.sinks.kafka.diagnose import diagnose
from onceward.sinks.kafka.errors import KafkaFailed, Passing, classify, row_rejected, translated
from onceward.sinks.kafka.facts import TargetFacts, receipts_do_not_fit
from onceward.sinks.kafka.limits import DEFAULT_MAX_BYTES
from onceward.sinks.kafka.options import Choice, Options
from onceward.sinks.kafka.preflight import check
from onceward.sinks.kafka.rejected import find_rejected
from onceward.sinks.kafka.session import Session, SmallerBatches
from onceward.sinks.kafka.settings import Settings
from onceward.sinks.names import as_names

_ONE_RECORD_EACH = 1
_LESS = 4


class KafkaSink(TransactionalWriteAheadSink):
    """Exactly-once records for readers with `isolation.level=read_committed`, by way of the brokers `servers`.

    `topic` is where all rows go, or `topic_column` says it for each row. Rows with a column `value` of text or bytes go
    out by Spark's conventions (`key`, `value`, `topic`, `headers`, `partition`). Others become a JSON object of all
    columns, or of those that `value` lists; `value="column"` with `format` string, json or bytes sends one column.
    `key` is a column, or several for a JSON object; `headers`, `partition` and `timestamp` name columns. `config` are
    settings of the client (librdkafka's names), such as those for security.

    A missing topic is made only with `create_partitions`. `compression` is that of the records. Receipts are in the
    topic `receipts_topic`, and transactional ids begin with `id_prefix`. An epoch of more than
    `max_rows_per_transaction` rows goes out in several transactions. The brokers end a transaction after
    `transaction_timeout_s`, and one that does not answer for `timeout_s` is taken for gone, and asked again. `producer`
    is chosen by the installed librdkafka: rows go out by whole columns, or as records one by one. `name` is how staged
    work and receipts are found again, so keep it; by default it is made from the topic's.
    """

    mechanism = "write-ahead log, receipt in the same Kafka transaction"

    def __init__(
        self,
        servers: str,
        *,
        topic: str | None = None,
        topic_column: str | None = None,
        key: str | Sequence[str] = (),
        value: str | Sequence[str] = (),
        format: Literal["string", "json", "bytes"] | None = None,
        headers: str | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
        compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4",
        config: Mapping[str, Setting] | None = None,
        create_partitions: int | None = None,
        receipts_topic: str = "onceward-receipts",
        id_prefix: str = "onceward",
        producer: Literal["columns", "records"] | None = None,
        max_rows_per_transaction: int = 1_000_000,
        transaction_timeout_s: float = 60.0,
        timeout_s: float = 30.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name if name is not None else default_sink_name("kafka", topic or "*"))
        driver()
        try:
            self._options = Options(
                Choice(topic, topic_column, as_names(key), as_names(value), format, headers, partition, timestamp),
                Settings(
                    servers, dict(config or {}), compression, transaction_timeout_s, timeout_s, id_prefix, producer
                ),
                receipts_topic,
                create_partitions,
                max_rows_per_transaction,
            )
        except ConfigurationError as error:
            raise ConfigurationError(error.message, hint=error.hint, sink=self.name) from None
        self._alone = threading.RLock()
        self._session: Session | None = None
        self._batch_bytes = DEFAULT_MAX_BYTES
        self._facts = self._nothing_relied_on()

    def __getstate__(self) -> dict[str, Any]:
        """The configuration; what is open stays here."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_alone", "_session")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._alone, self._session = threading.RLock(), None

    def __repr__(self) -> str:
        """Without the secrets."""
        topic = self._options.choice.topic
        where = f"topic={topic!r}" if topic is not None else "topic by row"
        return f"KafkaSink({self.settings.servers!r}, {where}, config={self.settings.shown()!r})"

    @property
    def settings(self) -> Settings:
        """How the brokers are reached."""
        return self._options.settings

    # --- before the start -----------------------------------------------------------------------

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Compare options and stream; then ask the brokers for topics, permissions and transactions."""
        with attributed(sink=self.name):
            columns = columns_of(self._options.choice, schema)
            refuse_stream(schema, columns)
            check(self._options, columns, sink=self.name)
            self._facts = self._nothing_relied_on()

    def target_facts(self) -> Mapping[str, str]:
        """The topics of rows and receipts: which they are, and how they keep what they are given."""
        topics = self._options.topics
        with attributed(sink=self.name), closing(Cluster(self.settings)) as cluster:
            self._facts = self._nothing_relied_on()
            self._facts.take(topics, cluster.describe(topics))
            return {**self._facts.facts(topics), **cluster.of_transactions()}

    def _nothing_relied_on(self) -> TargetFacts:
        return TargetFacts(self._options.receipts_topic, has_times=self._options.choice.timestamp is not None)

    def diagnose(self, workload: Workload) -> Iterable[Finding]:
        """See `Sink.diagnose`."""
        return diagnose(self.settings, self._options.topics)

    # --- publish --------------------------------------------------------------------------------

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """The rows of every slot that has no receipt yet, with the receipts: in one transaction, or a few if large.

        Slots are never divided, so each is in with its receipt or not at all.
        """
        if not slots:
            return True
        with attributed(sink=self.name, epoch=checkpoint_id):
            while True:
                try:
                    self._publish(slots, job, checkpoint_id)
                    return True
                except SmallerBatches:
                    # Smaller each time, so this ends.
                    continue
                except KafkaFailed as failed:
                    if classify(failed) is ErrorClass.ROW:
                        self._refuse_rejected(failed, slots, job, checkpoint_id)
                    raise

    def _publish(self, slots: Sequence[SlotValues], job: JobIdentity, epoch: int) -> None:
        with self._at(job) as session:
            session.begin_epoch()
            if any(slot.receipt is not None for slot in slots):
                session.announce()
            for group in _groups(session.without_receipt(slots, epoch), self._options.max_rows_per_transaction):
                session.publish(group)

    def _refuse_rejected(
        self, failed: KafkaFailed, slots: Sequence[SlotValues], job: JobIdentity, epoch: int
    ) -> NoReturn:
        """The brokers say that a record is at fault. Which one, or was it only their batch?"""
        if failed.topic == self._options.receipts_topic:
            raise receipts_do_not_fit(self._options.receipts_topic, str(failed))
        for row in self.find_rejected(slots, job, epoch):
            raise row_rejected(row) from failed
        # Where the topic's limit cannot be seen, batches may be larger than it takes.
        self._batch_bytes = max(_ONE_RECORD_EACH, self._batch_bytes // _LESS)
        raise Passing(str(failed), failed.code, topic=failed.topic) from failed

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        """See `TransactionalWriteAheadSink.find_rejected`."""
        with self._alone, attributed(sink=self.name, epoch=checkpoint_id):
            self._end()
            usual, self._batch_bytes = self._batch_bytes, _ONE_RECORD_EACH
            try:
                with self._at(job) as session:
                    waiting = session.without_receipt(slots, checkpoint_id)
                return find_rejected(waiting, partial(self._at, job))
            finally:
                self._end()
                self._batch_bytes = usual

    # --- receipts -------------------------------------------------------------------------------

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """All of this job's name and this sink; below the watermark only those of each generation's last epoch.

        The transactional id is taken first: what a predecessor left open is finished, so nothing can come to be behind
        the reader's back. A driver that still publishes has to take the id again, and finds out what it missed.
        """
        with self._alone, attributed(sink=self.name):
            self._end()
            with self._at(job) as session:
                return list(session.receipts.all_receipts())

    def receipts_at(self) -> str:
        """The topic and its id: one that was deleted and made anew holds none of the receipts that it had."""
        with attributed(sink=self.name), closing(Cluster(self.settings)) as cluster:
            topic = self._options.receipts_topic
            described = cluster.describe([topic]).get(topic)
        return f"topic {topic}" + (f" ({described.id})" if described is not None else "")

    def forget(self, job: JobIdentity, below: int) -> None:
        """See `Sink.forget`."""
        with attributed(sink=self.name), self._at(job) as session:
            session.announce()
            session.forget(below)

    # --- the session ----------------------------------------------------------------------------

    @contextmanager
    def _at(self, job: JobIdentity) -> Iterator[Session]:
        """The session of this job. A failure ends it: the next one asks the brokers how things stand."""
        with self._alone:
            if self._session is not None and self._session.job != job:
                self._end()
            try:
                if self._session is None:
                    self._session = Session(
                        self._options,
                        job,
                        self.name,
                        facts=self._facts,
                        batch_bytes=self._batch_bytes,
                    )
                yield self._session
            except BaseException as error:
                if isinstance(error, SmallerBatches):
                    self._batch_bytes = error.size
                self._end()
                if isinstance(error, KafkaFailed) and (verdict := translated(error)) is not error:
                    raise verdict from error
                raise

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _groups(slots: Sequence[SlotValues], max_rows_per_transaction: int) -> Iterator[list[SlotValues]]:
    """Slots that go together, in order: as many as have so many rows, and at least one."""
    group: list[SlotValues] = []
    rows = 0
    for slot in slots:
        if group and rows + slot.rows > max_rows_per_transaction:
            yield group
            group, rows = [], 0
        group.append(slot)
        rows += slot.rows
    if group:
        yield group
