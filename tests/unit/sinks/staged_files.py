"""A slot of rows staged by the file sink, and what its folder shows of them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onceward.contracts import Handle, SlotContext
from onceward.epoch import SinkAck
from onceward.sinks import FileSink
from onceward.sinks.files import publish as files_publish

Contexts = Callable[..., SlotContext]

ROWS = pa.record_batch({"id": pa.array([1, 2, 3, 4], pa.int64()), "app": ["a", "b", "a", None]})


def stage(sink: FileSink, context: SlotContext, *batches: pa.RecordBatch) -> Handle:
    transaction = sink.begin_transaction(context)
    for batch in batches or (ROWS,):
        sink.invoke(transaction, batch)
    handle = SinkAck.of(sink.pre_commit(transaction), context, sink.name).handle
    return dict(json.loads(json.dumps(handle)))


def files(handle: Handle) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], handle["files"])


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".onceward" not in path.parts)


def hidden(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / ".onceward"))


def ids(folder: Path) -> list[int]:
    """As a reader who lists the folder would see them."""
    tables = [pq.ParquetFile(path).read(columns=["id"]) for path in visible(folder)]
    return sorted(value for table in tables for value in table["id"].to_pylist())


def publish_first_file_only(sink: FileSink, handle: Handle) -> None:
    """What a crash after the first of several files leaves behind."""
    with pytest.MonkeyPatch.context() as patch:

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        real = files_publish.give_name
        calls = iter([real])
        patch.setattr(files_publish, "give_name", lambda *args: next(calls, die)(*args))
        with pytest.raises(KeyboardInterrupt):
            sink.commit(handle)
