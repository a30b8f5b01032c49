"""At a run's first epoch: do the executors see the folders that they must share with the driver?

Each write into a folder that only looks the same succeeds, and what was written is missed much later. The driver puts a
small file with random content into each folder, and a task on every core looks at it. That is a help, no proof: an
executor may come later. Nothing is decided before what was staged has been found (see `epoch/verify.py`).

A driver that dies meanwhile leaves hidden files of a few bytes, which the checkpoint's next run removes.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pyspark import SparkContext

from onceward.contracts import TwoPhaseCommitSink
from onceward.epoch import RunContext
from onceward.errors import Fenced, NotShared, StorageFailed
from onceward.storage import LocalStorage

log = logging.getLogger("onceward")

_ONE_PROCESS = re.compile(r"local(\[.*\])?")
# A task that ends at once would leave its core free for the next one, and other executors unasked.
_HELD_S = 0.2
Sight = tuple[str, str]


def probe_folders(spark: SparkContext, context: RunContext) -> None:
    """Refuse a folder that an executor does not share with this driver. Where both are one process, only tidy up."""
    folders = list(dict.fromkeys(_folders(context)))
    prefix = f".onceward-probe-{context.job.digest}-{context.job.generation}-"
    for folder in folders:
        _remove_left_over(folder, prefix, but=f"{prefix}{context.run}")
    if folders and not _ONE_PROCESS.fullmatch(spark.master or "local"):
        _probe(spark, {folder / f"{prefix}{context.run}": secrets.token_hex(16) for folder in folders})


def _folders(context: RunContext) -> Iterator[Path]:
    logs = any(not isinstance(sink, TwoPhaseCommitSink) for sink in context.sinks)
    if logs and isinstance(context.storage, LocalStorage):
        yield context.storage.root
    for sink in context.sinks:
        yield from map(Path, sink.shared_folders())


def _remove_left_over(folder: Path, prefix: str, *, but: str) -> None:
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and name != but:
                (folder / name).unlink(missing_ok=True)


def _probe(spark: SparkContext, planted: Mapping[Path, str]) -> None:
    try:
        for path, content in planted.items():
            path.write_text(content)
        unseen = _unseen(spark, planted)
        gone = [path for path in planted if not path.exists()]
    except OSError as error:
        raise StorageFailed(
            f"cannot write {error.filename}: {error.strerror}", hint="check free space, permissions and mounts"
        ) from error
    finally:
        for path in planted:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    if gone:
        raise Fenced(
            f"{gone[0]} was removed while the executors looked for it",
            hint="another driver has started on this checkpoint, or someone cleans up there; stop one of them",
        )
    if unseen:
        raise NotShared(_told(unseen), hint=_HINT)


_HINT = (
    "driver and executors must have one and the same file system mounted there; give a shared path, or use a sink that "
    "is reached over the network. Nothing was staged"
)


def _told(unseen: Iterable[Sight]) -> str:
    places = "; ".join(f"{Path(path).parent} on {host}" for host, path in sorted(set(unseen)))
    return f"what the driver on {platform.node()} puts into a folder is not seen there by executors: {places}"


def _unseen(spark: SparkContext, planted: Mapping[Path, str]) -> list[Sight]:
    """Who does not see which file. That nobody could be asked is not held against the folder."""
    executors = spark._jsc.sc().getExecutorMemoryStatus().size()
    tasks = max(spark.defaultParallelism, executors)
    look = _look({os.fspath(path): content for path, content in planted.items()}, _HELD_S)
    try:
        return list(spark.parallelize(range(tasks), tasks).mapPartitions(look).collect())
    except Exception as error:
        log.warning("the executors could not be asked whether they share the job's folders: %s", _first_line(error))
        return []


def _look(planted: dict[str, str], held_s: float) -> Callable[[Iterable[int]], Iterator[Sight]]:
    """What an executor does. A function inside a function travels as it is, where onceward need not be installed."""

    def look(_: Iterable[int]) -> Iterator[tuple[str, str]]:
        import platform
        import time

        time.sleep(held_s)
        for path, content in planted.items():
            try:
                with open(path) as file:
                    seen = file.read() == content
            except OSError:
                seen = False
            if not seen:
                yield platform.node(), path

    return look


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
