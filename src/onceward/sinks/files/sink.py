"""Files in a folder: Parquet, JSON lines or CSV, partitioned by Hive's rules if wished.

Two-phase commit. Rows wait in hidden files of `<path>/.onceward`; publishing gives each its visible name, in one step
and for good. The name is the receipt: it holds the whole name of the transaction, so a plain listing of the folder
proves what was published, and never shows a file twice or a half-written one.

A slot becomes visible file by file: a reader may see some files of an epoch before the others.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa

from onceward.contracts import (
    AlreadyCommitted,
    Committed,
    EngineTarget,
    EngineWritten,
    Handle,
    Json,
    Lost,
    Outcome,
    Receipt,
    Repeated,
    SlotContext,
    TwoPhaseCommitSink,
)
from onceward.errors import ConfigurationError, attributed
from onceward.identity import JobIdentity, JobName, TransactionName, job_digest
from onceward.sinks.files.engine import engine_folder, is_alike, stage_engine_files
from onceward.sinks.files.layout import StagedFile, transaction_of
from onceward.sinks.files.options import Options, default_name
from onceward.sinks.files.preflight import check
from onceward.sinks.files.publish import files_of, missing, publish, remove, sizes_of
from onceward.sinks.files.receipts import all_receipts
from onceward.sinks.files.writer import SlotTransaction
from onceward.storage import local_path, make_folders, sync_folder


class FileSink(TwoPhaseCommitSink[SlotTransaction], EngineWritten):
    """Exactly-once files in the folder `path`, on a local or mounted file system.

    `format` is parquet, jsonl or csv. `partition_by` columns become folders `column=value` and leave the files. A slot
    that has more than `max_rows_per_file` rows (exact) or `max_bytes_per_file` bytes (about) goes to several files.
    `compression` is snappy for Parquet, none for text, unless said otherwise. `options` go to
    `pyarrow.parquet.ParquetWriter` or `pyarrow.csv.WriteOptions` as they are. `name` is how staged work is found again,
    so keep it; by default it is made from the folder's.
    """

    receipts_are_output = True
    repeated = Repeated.FILES
    mechanism = "two-phase commit: hidden file, then its visible name, which is the receipt"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: Literal["parquet", "jsonl", "csv"] = "parquet",
        partition_by: str | Sequence[str] = (),
        max_rows_per_file: int | None = None,
        max_bytes_per_file: int | None = None,
        compression: str | None = None,
        options: Mapping[str, object] | None = None,
        name: str | None = None,
    ) -> None:
        self.path = local_path(path, follows_links=False)
        super().__init__(name=name if name is not None else default_name(self.path.name or "root"))
        try:
            self._options = Options.parse(
                self.path,
                format=format,
                compression=compression,
                options=options,
                partition_by=partition_by,
                max_rows_per_file=max_rows_per_file,
                max_bytes_per_file=max_bytes_per_file,
            )
        except ConfigurationError as error:
            raise ConfigurationError(error.message, hint=error.hint, sink=self.name) from None

    # --- before the start -----------------------------------------------------------------------

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Make the folder, try it out, and try the format on the schema."""
        with attributed(sink=self.name):
            check(self._options, schema, output_mode=output_mode)

    def shared_folders(self) -> Sequence[str]:
        """The hidden folder: what executors write there, the driver publishes."""
        return (os.fspath(self._options.hidden),)

    # --- stage, on executors --------------------------------------------------------------------

    def begin_transaction(self, context: SlotContext) -> SlotTransaction:
        """A writer; its first file is made when rows come."""
        make_folders(self._options.hidden)
        return SlotTransaction(context, self._options)

    def invoke(self, transaction: SlotTransaction, batch: pa.RecordBatch) -> None:
        """Gather the rows, and write them when there are enough."""
        transaction.add(batch)

    def pre_commit(self, transaction: SlotTransaction) -> Handle:
        """Finish the files and force them, and the hidden folder, to the disk."""
        return self._handle(transaction.seal())

    def _handle(self, files: Sequence[StagedFile]) -> Handle:
        return {
            "files": [file.as_json() for file in files],
            "rows": sum(file.rows for file in files),
            "bytes": sum(file.bytes for file in files),
        }

    def engine_target(self, context: SlotContext, schema: pa.Schema) -> EngineTarget | None:
        """Spark writes plain columns to Parquet faster than they reach Python, and by the same rules."""
        asked = self._options
        if asked.format != "parquet" or asked.max_bytes_per_file is not None or asked.format_options:
            return None
        if not is_alike(schema):
            return None
        make_folders(asked.hidden)
        options = {"compression": asked.compression, "maxRecordsPerFile": str(asked.max_rows_per_file or 0)}
        return EngineTarget(engine_folder(self.path, context).as_uri(), "parquet", options, asked.partition_by)

    def engine_pre_commit(self, context: SlotContext) -> Handle:
        """The same handle as after staging through Python."""
        return self._handle(stage_engine_files(self.path, context, self._options.extension))

    def discard(self, transaction: SlotTransaction) -> None:
        """Remove what the attempt has written so far."""
        transaction.discard()

    # --- publish, on the driver -----------------------------------------------------------------

    def verify(self, handles: Sequence[Handle]) -> Sequence[str | None]:
        """Every staged file has its size, seen from here."""
        return [missing(self._options.hidden, self.path, handle) for handle in handles]

    def commit(self, handle: Handle) -> Outcome:
        """See `commit_all`."""
        return self.commit_all([handle])[0]

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """Give every file its visible name; each folder is forced to the disk once, not once a slot.

        Interleavings this survives, alone or with a second publisher: a crash between any two steps, since all names
        are given before the first staged one is removed; a power loss, since the visible folders are forced to the
        disk before the staged names go, and these are gone from it before the epoch is settled: one that came back
        would be published again where a reader has taken the visible file away; a second publisher half-way, since a
        name that exists is not given again.
        """
        slots = [
            [(self._options.hidden / staged, self.path / final) for staged, final in files_of(handle)]
            for handle in handles
        ]
        sizes = {self.path / final: size for handle in handles for final, size in sizes_of(handle).items()}
        outcomes = [self._give_names(places, sizes) for places in slots]
        named = [
            places
            for places, outcome in zip(slots, outcomes, strict=True)
            if isinstance(outcome, (Committed, AlreadyCommitted))
        ]
        self._sync_folders_of([final for places in named for _, final in places])
        for places in named:
            for staged, _ in places:
                staged.unlink(missing_ok=True)
        if named and self._options.hidden.is_dir():
            sync_folder(self._options.hidden)
        return outcomes

    def _give_names(self, places: list[tuple[Path, Path]], sizes: Mapping[Path, object]) -> Outcome:
        """One slot's files. The staged name is looked for first: whoever removes it has made the final one before."""
        seen = [(staged.exists(), final.exists()) for staged, final in places]
        if (False, False) in seen:
            final = places[seen.index((False, False))][1]
            return Lost(f"{final} is not there, and neither is its staged file in {self._options.hidden}")
        for staged, final in places:
            hindrance = publish(staged, final, sizes.get(final))
            if hindrance is not None:
                return hindrance
        is_new = not places or not all(final for _, final in seen)
        return Committed() if is_new else AlreadyCommitted()

    def abort(self, handle: Handle) -> None:
        """Remove the hidden files of this transaction; visible ones stay."""
        transaction = str(handle["transaction"])
        for name, owner in self._staged(transaction):
            if str(owner) == transaction:
                remove(self._options.hidden / name)

    # --- recover, on the driver -----------------------------------------------------------------

    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        """Every transaction of which anything is left in the hidden folder, finished or not."""
        staged = self._staged(f"ow1_{job.digest}_{job.generation}_")
        return _handles((name, owner) for name, owner in staged if owner.belongs_to(job, self.name))

    def pending_of_job(self, name: JobName) -> Iterable[Handle]:
        """The same, of every generation and of every file sink that has had this folder."""
        return _handles(self._staged(f"ow1_{job_digest(name)}_"))

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """One for each slot of which a file is visible, in any generation."""
        return all_receipts(self.path, job, self.name)

    # --- the hidden folder ----------------------------------------------------------------------

    def _staged(self, prefix: str) -> list[tuple[str, TransactionName]]:
        """What onceward has put into the hidden folder; the rest of it is not ours."""
        try:
            names = os.listdir(self._options.hidden)
        except FileNotFoundError:
            return []
        ours = [name for name in names if name.startswith(prefix)]
        return [(name, owner) for name in ours if (owner := transaction_of(name)) is not None]

    def _sync_folders_of(self, finals: Iterable[Path]) -> None:
        """Each folder on the way from the root to a file, once: it may be new, or made by a run that crashed."""
        leaves = {final.parent for final in finals}
        folders = {folder for leaf in leaves for folder in (leaf, *leaf.parents) if folder.is_relative_to(self.path)}
        for folder in folders:
            sync_folder(folder)


def _handles(staged: Iterable[tuple[str, TransactionName]]) -> list[Handle]:
    """One for each transaction that any of these hidden files belongs to."""
    found: defaultdict[str, list[Json]] = defaultdict(list)
    for name, owner in staged:
        found[str(owner)].append({"staged": name})
    return [{"transaction": transaction, "files": files} for transaction, files in found.items()]
