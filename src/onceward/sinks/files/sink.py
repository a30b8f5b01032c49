"""Files in a folder: Parquet, JSON lines or CSV, partitioned by Hive's rules if wished.

Two-phase commit. Rows wait in hidden files of `<path>/.onceward`; publishing gives each its visible name, in one step
and for good. The name is the receipt: it holds the whole name of the transaction, so a plain listing of the folder
proves what was published, and never shows a file twice or a half-written one.

A slot becomes visible file by file: a reader may see some files of an epoch before the others.
"""

from __future__ import annotations

import os
import secrets
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
from onceward.errors import ConfigurationError, TargetRefused
from onceward.identity import (
    Fingerprint,
    JobIdentity,
    JobName,
    TransactionName,
    can_be_name,
    default_sink_name,
    job_digest,
)
from onceward.sinks.files.engine import engine_folder, is_alike, stage_engine_files
from onceward.sinks.files.formats import FORMATS
from onceward.sinks.files.layout import (
    HIDDEN,
    FinalName,
    StagedFile,
    is_plain,
    published,
    transaction_of,
)
from onceward.sinks.files.publish import files_of, give_name, missing, publish, remove
from onceward.sinks.files.writer import SlotTransaction, WriterSettings
from onceward.sinks.spark_types import spark_type
from onceward.storage import local_path, make_folders, sync_folder

# The folder in which it lists what its readers shall see.
_SPARKS_LIST = "_spark_metadata"


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
        super().__init__(name=name if name is not None else _default_name(self.path.name or "root"))
        if format not in FORMATS:
            raise ConfigurationError(
                f"unknown file format {format!r}", hint=f"choose one of {', '.join(FORMATS)}", sink=self.name
            )
        self.format = format
        known = FORMATS[format].compressions
        self.compression = compression if compression is not None else FORMATS[format].default_compression
        if self.compression not in known:
            raise ConfigurationError(
                f"{format} files cannot be compressed with {compression!r}",
                hint=f"choose one of {', '.join(known)}",
                sink=self.name,
            )
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if len(set(self.partition_by)) < len(self.partition_by):
            raise ConfigurationError(
                f"partition_by names a column twice: {', '.join(self.partition_by)}",
                hint="name each column once",
                sink=self.name,
            )
        self.max_rows_per_file = self._positive("max_rows_per_file", max_rows_per_file)
        self.max_bytes_per_file = self._positive("max_bytes_per_file", max_bytes_per_file)
        self.options = dict(options or {})

    def _positive(self, option: str, value: int | None) -> int | None:
        if value is not None and value < 1:
            raise ConfigurationError(f"{option} is {value}", hint="give at least 1, or None", sink=self.name)
        return value

    @property
    def _hidden(self) -> Path:
        return self.path / HIDDEN

    # --- before the start -----------------------------------------------------------------------

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Make the folder, try it out, and try the format on the schema."""
        if output_mode == "complete":
            raise TargetRefused(
                "a file is never changed, and output mode complete would add the whole result in every epoch",
                hint="use output mode append, or a sink with mode='upsert' and keys",
                sink=self.name,
            )
        self._check_columns(schema)
        if (self.path / _SPARKS_LIST).exists():
            raise TargetRefused(
                f"Spark's own file sink has written to {self.path}: Spark reads only what its {_SPARKS_LIST} lists",
                hint=f"give another folder; or, when that query is stopped for good, remove {_SPARKS_LIST}: what it "
                "wrote and did not commit becomes visible then",
                sink=self.name,
            )
        try:
            make_folders(self._hidden)
            sync_folder(self.path)
            self._try_out()
        except OSError as error:
            raise TargetRefused(
                f"cannot write to {self.path}: {error.strerror or error}",
                hint="give a folder that this user may create and write, on one file system with all of its folders",
                sink=self.name,
            ) from error

    def shared_folders(self) -> Sequence[str]:
        """The hidden folder: what executors write there, the driver publishes."""
        return (os.fspath(self._hidden),)

    def _check_columns(self, schema: pa.Schema) -> None:
        missing = [column for column in self.partition_by if column not in schema.names]
        if missing:
            raise TargetRefused(
                f"the stream has no column {', '.join(missing)} to partition by",
                hint=f"its columns are {', '.join(schema.names)}",
                sink=self.name,
            )
        for column in self.partition_by:
            if column.startswith((".", "_")):
                raise TargetRefused(
                    f"a folder named after column {column!r} would be hidden from readers of files",
                    hint="rename it: Spark skips folders that begin with a dot, Arrow also those with an underscore",
                    sink=self.name,
                )
            if not is_plain(schema.field(column).type):
                raise TargetRefused(
                    f"column {column!r} ({spark_type(schema.field(column).type)}) cannot name a folder",
                    hint="partition by text, whole numbers, decimals, booleans, dates or timestamps",
                    sink=self.name,
                )
        written = pa.schema([field for field in schema if field.name not in self.partition_by])
        if not written.names:
            raise TargetRefused(
                "every column is a partition column, so the files would have none",
                hint="leave at least one column out of partition_by",
                sink=self.name,
            )
        for field in written:
            hint = FORMATS[self.format].refuse(field.type)
            if hint is not None:
                raise TargetRefused(
                    f"column {field.name!r} ({spark_type(field.type)}) does not fit {self.format}",
                    hint=hint,
                    sink=self.name,
                )
        try:
            empty = written.empty_table()
            encoder = FORMATS[self.format].open(pa.BufferOutputStream(), empty, self.compression, self.options)
            encoder.write(empty)
            encoder.close()
        except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
            raise TargetRefused(
                f"{self.format} does not take these columns and options: {error}",
                hint="change the columns' types, or the sink's options",
                sink=self.name,
            ) from error

    def _try_out(self) -> None:
        """One file through all that publishing needs of the file system."""
        token = secrets.token_hex(8)
        staged = self._hidden / f"try-{token}"
        visible = self.path / f".onceward-try-{token}"
        try:
            staged.touch()
            give_name(staged, visible)
        finally:
            staged.unlink(missing_ok=True)
            visible.unlink(missing_ok=True)

    # --- stage, on executors --------------------------------------------------------------------

    def begin_transaction(self, context: SlotContext) -> SlotTransaction:
        """A writer; its first file is made when rows come."""
        make_folders(self._hidden)
        return SlotTransaction(
            context,
            WriterSettings(
                root=self.path,
                format=FORMATS[self.format],
                compression=self.compression,
                options=self.options,
                partition_by=self.partition_by,
                max_rows=self.max_rows_per_file,
                max_bytes=self.max_bytes_per_file,
            ),
        )

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
        if self.format != "parquet" or self.max_bytes_per_file is not None or self.options or not is_alike(schema):
            return None
        make_folders(self._hidden)
        options = {"compression": self.compression, "maxRecordsPerFile": str(self.max_rows_per_file or 0)}
        return EngineTarget(engine_folder(self.path, context).as_uri(), "parquet", options, self.partition_by)

    def engine_pre_commit(self, context: SlotContext) -> Handle:
        """The same handle as after staging through Python."""
        extension = FORMATS[self.format].compressions[self.compression]
        return self._handle(stage_engine_files(self.path, context, extension))

    def discard(self, transaction: SlotTransaction) -> None:
        """Remove what the attempt has written so far."""
        transaction.discard()

    # --- publish, on the driver -----------------------------------------------------------------

    def verify(self, handles: Sequence[Handle]) -> Sequence[str | None]:
        """Every staged file has its size, seen from here."""
        return [missing(self._hidden, handle) for handle in handles]

    def commit(self, handle: Handle) -> Outcome:
        """See `commit_all`."""
        return self.commit_all([handle])[0]

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """Give every file its visible name; each folder is forced to the disk once, not once a slot.

        Interleavings this survives, alone or with a second publisher: a crash between any two steps, since all names
        are given before the first staged one is removed; a power loss, since the visible folders are forced to the
        disk before the staged names go; a second publisher half-way, since a name that exists is not given again.
        """
        slots = [
            [(self._hidden / staged, self.path / final) for staged, final in files_of(handle)] for handle in handles
        ]
        outcomes = [self._give_names(places) for places in slots]
        named = [
            places
            for places, outcome in zip(slots, outcomes, strict=True)
            if isinstance(outcome, (Committed, AlreadyCommitted))
        ]
        self._sync_folders_of([final for places in named for _, final in places])
        for places in named:
            for staged, _ in places:
                staged.unlink(missing_ok=True)
        return outcomes

    def _give_names(self, places: list[tuple[Path, Path]]) -> Outcome:
        """One slot's files. The staged name is looked for first: whoever removes it has made the final one before."""
        seen = [(staged.exists(), final.exists()) for staged, final in places]
        if (False, False) in seen:
            final = places[seen.index((False, False))][1]
            return Lost(f"{final} is not there, and neither is its staged file in {self._hidden}")
        for staged, final in places:
            hindrance = publish(staged, final)
            if hindrance is not None:
                return hindrance
        is_new = not places or not all(final for _, final in seen)
        return Committed() if is_new else AlreadyCommitted()

    def abort(self, handle: Handle) -> None:
        """Remove the hidden files of this transaction; visible ones stay."""
        transaction = str(handle["transaction"])
        for name, owner in self._staged(transaction):
            if str(owner) == transaction:
                remove(self._hidden / name)

    # --- recover, on the driver -----------------------------------------------------------------

    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        """Every transaction of which anything is left in the hidden folder, finished or not."""
        staged = self._staged(f"ow1_{job.digest}_{job.generation}_")
        return _handles((name, owner) for name, owner in staged if owner.belongs_to(job, self.name))

    def pending_of_job(self, name: JobName) -> Iterable[Handle]:
        """The same, of every generation and of every file sink that has had this folder."""
        return _handles(self._staged(f"ow1_{job_digest(name)}_"))

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """One receipt for each slot that is visible, in any generation.

        One visible file of several is enough: it proves the decision, and committing the slot again shows the others.
        """
        names = published(self.path, f"part-ow1_{job.digest}_")
        finals = {parsed for name in names if (parsed := FinalName.parse(name)) is not None}
        owners = ((final, TransactionName.parse(final.transaction)) for final in finals)
        return {
            Receipt(
                job=job.name,
                generation=owner.generation,
                sink=self.name,
                epoch=owner.epoch,
                slot=owner.slot,
                fingerprint=Fingerprint(final.fingerprint),
            )
            for final, owner in owners
            if owner is not None and owner.is_of(job, self.name)
        }

    # --- the hidden folder ----------------------------------------------------------------------

    def _staged(self, prefix: str) -> list[tuple[str, TransactionName]]:
        """What onceward has put into the hidden folder; the rest of it is not ours."""
        try:
            names = os.listdir(self._hidden)
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


def _default_name(folder: str) -> str:
    """The folder's as it stands, where that can be a name: checkpoints hold such names, and in some of them letters
    that do not print, such as the joiners of Persian, which `default_sink_name` replaces."""
    name = f"files:{folder}"[:200].rstrip()
    return name if can_be_name(name) else default_sink_name("files", folder)


def _handles(staged: Iterable[tuple[str, TransactionName]]) -> list[Handle]:
    """One for each transaction that any of these hidden files belongs to."""
    found: defaultdict[str, list[Json]] = defaultdict(list)
    for name, owner in staged:
        found[str(owner)].append({"staged": name})
    return [{"transaction": transaction, "files": files} for transaction, files in found.items()]
