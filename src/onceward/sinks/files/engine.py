"""Parquet files that Spark itself has written into the hidden folder, on their way to being a staged slot."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from onceward.contracts import SlotContext
from onceward.sinks.files.layout import HIDDEN, StagedFile, final_name, staged_name
from onceward.storage import sync_file, sync_folder

_ALIKE = (
    pt.is_boolean,
    pt.is_integer,
    pt.is_floating,
    pt.is_string,
    pt.is_large_string,
    pt.is_binary,
    pt.is_large_binary,
    pt.is_date,
    pt.is_timestamp,
    pt.is_decimal,
)


def is_alike(schema: pa.Schema) -> bool:
    """Whether Spark and Arrow write these columns so that readers find the same types in both kinds of file."""
    return all(any(test(field.type) for test in _ALIKE) for field in schema)


def engine_folder(root: Path, context: SlotContext) -> Path:
    """Where Spark writes; named like a staged file, so that it is found and aborted like one."""
    return root / HIDDEN / staged_name(str(context.transaction), part=0, extension="engine")


def stage_engine_files(root: Path, context: SlotContext, extension: str) -> list[StagedFile]:
    """Force Spark's files to the disk and give them the names of staged ones; empty files are left behind.

    A crash in the middle leaves some files with their new names and the rest in the folder: all bear the transaction's
    name, and the takeover aborts them.
    """
    folder = engine_folder(root, context)
    # A partition column may itself be called part-..., and the sink's own path may have a folder _temporary in it.
    found = (path.relative_to(folder) for path in folder.rglob("part-*") if path.is_file())
    written = sorted(folder / path for path in found if "_temporary" not in path.parts)
    counted = [(path, pq.read_metadata(path).num_rows) for path in written]
    kept = [(path, rows) for path, rows in counted if rows]
    transaction, fingerprint = str(context.transaction), str(context.fingerprint)
    staged: list[StagedFile] = []
    for part, (path, rows) in enumerate(kept):
        name = final_name(transaction, fingerprint, part=part, parts=len(kept), extension=extension)
        file = StagedFile(
            staged=staged_name(transaction, part=part, extension=extension),
            final=(path.parent.relative_to(folder) / name).as_posix(),
            rows=rows,
            bytes=path.stat().st_size,
        )
        sync_file(path)
        os.rename(path, root / HIDDEN / file.staged)
        staged.append(file)
    shutil.rmtree(folder, ignore_errors=True)
    sync_folder(root / HIDDEN)
    return staged
