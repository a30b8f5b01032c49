"""Keys in Redis: strings, hashes, sorted sets and counters.

Write-ahead: rows go in together with the receipt of their slot, in one step of a script inside the server, on the
driver. That step is a part of an epoch, of no more than `max_rows_per_script` rows; a small epoch is one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

from onceward.connections.redis import NoServer, RedisConnection, address, checked_url, driver, opened
from onceward.contracts import (
    Finding,
    Receipt,
    RejectedRow,
    Repeated,
    SlotValues,
    TransactionalWriteAheadSink,
    Workload,
)
from onceward.errors import ConfigurationError, RowsRejected, TargetRefused, TargetUnavailable, attributed
from onceward.identity import JobIdentity, default_sink_name
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.redis.apply import Delivery
from onceward.sinks.redis.compatibility import adds_fractions, refuse_unless_fitting
from onceward.sinks.redis.diagnose import diagnose
from onceward.sinks.redis.errors import classify, translating
from onceward.sinks.redis.facts import TargetFacts
from onceward.sinks.redis.options import DEFAULT_PREFIX, make_layout
from onceward.sinks.redis.preflight import refuse_unless_able
from onceward.sinks.redis.receipts import Scope, all_receipts, forget_below, key_of
from onceward.sinks.redis.rejected import find_rejected

_BAD_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"


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
            self._url = checked_url(url)
            fields = (fields,) if isinstance(fields, str) else tuple(fields)
            self.layout = make_layout(
                type=type,
                key=key,
                value=value,
                fields=fields,
                field=field,
                member=member,
                score=score,
                by=by,
                deleted=deleted,
                ttl_s=ttl_s,
                receipts_prefix=receipts_prefix,
            )
        except ConfigurationError as error:
            raise ConfigurationError(error.message, hint=error.hint, sink=self.name) from None
        self.repeated = Repeated.COUNTED_TWICE if type == "counter" else Repeated.OVERWRITTEN
        self.address = address(url)
        self.null_keys = null_keys
        self.max_rows_per_script = max_rows_per_script
        self.receipts_prefix = receipts_prefix
        self.timeout_s = timeout_s
        self._facts: TargetFacts | None = None
        self._check_options()

    def _check_options(self) -> None:
        wrong: tuple[str, str] | None = None
        if self.null_keys not in ("refuse", "skip"):
            wrong = f"null_keys is {self.null_keys!r}", "choose refuse or skip"
        elif self.max_rows_per_script is not None and self.max_rows_per_script < 1:
            wrong = f"max_rows_per_script is {self.max_rows_per_script}", "give 1 or more, or None for whole epochs"
        elif self.timeout_s <= 0:
            wrong = f"timeout_s is {self.timeout_s}", "give seconds"
        elif not self.receipts_prefix or set(self.receipts_prefix) & set("{} \n"):
            wrong = f"receipts_prefix is {self.receipts_prefix!r}", "give a short text without braces or blanks"
        if wrong is not None:
            raise ConfigurationError(wrong[0], hint=wrong[1], sink=self.name)

    # --- before the start -----------------------------------------------------------------------

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Compare options and stream; then ask the server whether it can keep receipts and lets us write."""
        redis = driver()
        with attributed(sink=self.name):
            refuse_unless_fitting(self.layout, schema, output_mode=output_mode)
            try:
                with self._opened() as connection:
                    self._facts = refuse_unless_able(
                        connection,
                        self.layout,
                        fractions=adds_fractions(self.layout, schema),
                        database=self._database(),
                        scratch=f"{key_of(self.receipts_prefix, '', self.name)}check",
                    )
            except (redis.RedisError, NoServer) as error:
                what = f"cannot use the Redis server at {self.address}: {type(error).__name__}: {error}"
                if classify(error) is ErrorClass.RETRY and _BAD_CERTIFICATE not in str(error):
                    hint = "check host and port, and that the server runs and takes writes"
                    raise TargetUnavailable(what, hint=hint) from error
                raise TargetRefused(what, hint="check user, password and certificates") from error

    def target_facts(self) -> Mapping[str, str]:
        """See `Sink.target_facts`. The script looks at them again, in the first step of an epoch on each server."""
        with translating(self.address), self._opened() as connection:
            return self._facts_of(connection).facts()

    def diagnose(self, workload: Workload) -> Iterable[Finding]:
        """See `Sink.diagnose`."""
        with self._opened() as connection:
            return list(diagnose(connection, expires=self.layout.ttl_ms is not None))

    def _facts_of(self, connection: RedisConnection) -> TargetFacts:
        """As `check` found them; by a command that checks nothing, as they are now."""
        if self._facts is None:
            self._facts = TargetFacts.take(connection)
        return self._facts

    def _database(self) -> int:
        parts = urlsplit(self._url)
        named = parse_qs(parts.query).get("db", [parts.path.strip("/") if parts.scheme != "unix" else ""])
        return int(named[0] or 0)

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
                self.layout,
                self._facts_of(connection),
                max_rows_per_script=self.max_rows_per_script,
                skips_null_keys=self.null_keys == "skip",
            )

    def _scope(self, job: JobIdentity, epoch: int) -> Scope:
        return Scope(key_of(self.receipts_prefix, job.name, self.name), job.generation, epoch)

    # --- receipts -------------------------------------------------------------------------------

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """All of this job's name and this sink; below the watermark only those of each generation's last epoch.

        Also of slots of which only a part is in: they prove that their epoch was decided.
        """
        with self._opened() as connection:
            key = key_of(self.receipts_prefix, job.name, self.name)
            return all_receipts(connection, key, job.name, self.name)

    def receipts_at(self) -> str:
        """See `Sink.receipts_at`."""
        return f"keys {self.receipts_prefix}:receipts:"

    def forget(self, job: JobIdentity, below: int) -> None:
        """Raise the watermark, then drop the receipts below it: from the first step on they are not needed.

        Those of the newest epoch stay in any case: they tell a later checkpoint that this generation existed.
        """
        with self._opened() as connection:
            key = key_of(self.receipts_prefix, job.name, self.name)
            forget_below(connection, key, job.generation, below)

    @contextmanager
    def _opened(self) -> Iterator[RedisConnection]:
        with opened(self._url, self.timeout_s) as connection:
            yield connection
