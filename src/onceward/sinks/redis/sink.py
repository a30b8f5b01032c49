"""Keys in Redis: strings, hashes, sorted sets and counters.

Write-ahead: rows go in together with the receipt of their slot, in one step of a script inside the server, on the
driver. That step is a part of an epoch, of no more than `max_rows_per_script` rows; a small epoch is one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Literal

import pyarrow as pa

from onceward.connections.redis import RedisConnection, checked_url, driver, opened
from onceward.contracts import (
    Finding,
    Receipt,
    RejectedRow,
    Repeated,
    SlotValues,
    TransactionalWriteAheadSink,
    Workload,
)
from onceward.errors import ConfigurationError, RowsRejected, attributed
from onceward.identity import JobIdentity, default_sink_name
from onceward.sinks.names import as_names
from onceward.sinks.redis.apply import Delivery
from onceward.sinks.redis.compatibility import refuse_stream
from onceward.sinks.redis.diagnose import diagnose
from onceward.sinks.redis.errors import translating
from onceward.sinks.redis.facts import TargetFacts
from onceward.sinks.redis.options import DEFAULT_PREFIX, Options, make_layout
from onceward.sinks.redis.preflight import check, failures_as_refusals
from onceward.sinks.redis.receipts import Scope, all_receipts, forget_below, key_of
from onceward.sinks.redis.rejected import find_rejected


class RedisSink(TransactionalWriteAheadSink):
    """Exactly-once writes to Redis 6.2 or newer, or to a Redis Cluster, at `url`.

    `key` is a template with columns in braces. `type` says what a row does to its key: `"string"` sets it to the column
    `value`; `"hash"` sets the fields named like the columns `fields` (default: all that are not in the key), or with
    `field` (a template) one field to the column `value`; `"zset"` adds `member` (a template) with the column `score`;
    `"counter"` adds the column `by`, or 1 for each row, to the key or, with `field`, to a field of it.

    A null removes the string, field or member, and adds nothing to a counter; so does a true in the column `deleted`,
    which removes a hash as a whole. With `ttl_s` a key expires so long after its last write. A row whose key has a null
    stops the job, or with `null_keys="skip"` is left out.

    Up to `max_rows_per_script` rows go in by one script, with their receipt; None: the whole epoch. Keys of receipts
    begin with `receipts_prefix`. A server that does not answer for `timeout_s` is taken for gone, and asked again.
    `name` is how staged work and receipts are found again, so keep it; by default it is made from the key.
    """

    mechanism = "write-ahead log, receipt in the same step of a script inside Redis"

    def __init__(
        self,
        url: str,
        *,
        key: str,
        type: Literal["string", "hash", "zset", "counter"] = "string",
        value: str | None = None,
        fields: Sequence[str] = (),
        field: str | None = None,
        member: str | None = None,
        score: str | None = None,
        by: str | None = None,
        deleted: str | None = None,
        ttl_s: float | None = None,
        null_keys: Literal["refuse", "skip"] = "refuse",
        max_rows_per_script: int | None = 5_000,
        receipts_prefix: str = DEFAULT_PREFIX,
        timeout_s: float = 30.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name if name is not None else default_sink_name("redis", key))
        driver()
        try:
            self._options = Options(
                checked_url(url),
                make_layout(
                    type=type,
                    key=key,
                    value=value,
                    fields=as_names(fields),
                    field=field,
                    member=member,
                    score=score,
                    by=by,
                    deleted=deleted,
                    ttl_s=ttl_s,
                    receipts_prefix=receipts_prefix,
                ),
                null_keys=null_keys,
                max_rows_per_script=max_rows_per_script,
                receipts_prefix=receipts_prefix,
                timeout_s=timeout_s,
            )
        except ConfigurationError as error:
            raise ConfigurationError(error.message, hint=error.hint, sink=self.name) from None
        self.repeated = Repeated.COUNTED_TWICE if type == "counter" else Repeated.OVERWRITTEN
        self.address = self._options.address
        self._facts: TargetFacts | None = None

    # --- before the start -----------------------------------------------------------------------

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Compare options and stream; then ask the server whether it can keep receipts and lets us write."""
        with attributed(sink=self.name):
            refuse_stream(schema, self._options, output_mode=output_mode)
            with failures_as_refusals(self.address), self._opened() as connection:
                self._facts = check(connection, self._options, schema, sink=self.name)

    def target_facts(self) -> Mapping[str, str]:
        """See `Sink.target_facts`. The script looks at them again, in the first step of an epoch on each server."""
        with translating(self.address), self._opened() as connection:
            return self._facts_of(connection).facts()

    def diagnose(self, workload: Workload) -> Iterable[Finding]:
        """See `Sink.diagnose`."""
        with self._opened() as connection:
            return list(diagnose(connection, expires=self._options.layout.ttl_ms is not None))

    def _facts_of(self, connection: RedisConnection) -> TargetFacts:
        """As `check` found them; by a command that checks nothing, as they are now."""
        if self._facts is None:
            self._facts = TargetFacts.take(connection)
        return self._facts

    # --- publish --------------------------------------------------------------------------------

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """The rows of every slot that has no receipt yet, part by part, each with the receipts it brings forward."""
        if not slots:
            return True
        with self._delivery(job, checkpoint_id) as delivery:
            return delivery.apply(slots)

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        """See `TransactionalWriteAheadSink.find_rejected`. Of a slot that is partly in, only the rest is judged."""
        with self._delivery(job, checkpoint_id) as delivery:
            return find_rejected(delivery, slots)

    @contextmanager
    def _delivery(self, job: JobIdentity, epoch: int) -> Iterator[Delivery]:
        with (
            attributed(sink=self.name, epoch=epoch, when_rejected=RowsRejected.hint_for("the key in Redis")),
            translating(self.address),
            self._opened() as connection,
        ):
            yield Delivery(
                connection,
                self._scope(job, epoch),
                self._options,
                self._facts_of(connection),
            )

    def _scope(self, job: JobIdentity, epoch: int) -> Scope:
        return Scope(key_of(self._options.receipts_prefix, job.name, self.name), job.generation, epoch)

    # --- receipts -------------------------------------------------------------------------------

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """All of this job's name and this sink; below the watermark only those of each generation's last epoch.

        Also of slots of which only a part is in: they prove that their epoch was decided.
        """
        with self._opened() as connection:
            key = key_of(self._options.receipts_prefix, job.name, self.name)
            return all_receipts(connection, key, job.name, self.name)

    def receipts_at(self) -> str:
        """See `Sink.receipts_at`."""
        return f"keys {self._options.receipts_prefix}:receipts:"

    def forget(self, job: JobIdentity, below: int) -> None:
        """Raise the watermark, then drop the receipts below it: from the first step on they are not needed.

        Those of the newest epoch stay in any case: they tell a later checkpoint that this generation existed.
        """
        with self._opened() as connection:
            key = key_of(self._options.receipts_prefix, job.name, self.name)
            forget_below(connection, key, job.generation, below)

    @contextmanager
    def _opened(self) -> Iterator[RedisConnection]:
        with opened(self._options.url, self._options.timeout_s) as connection:
            yield connection
