"""Which query a checkpoint belongs to, by Spark's own id: in its file `metadata`, and in the thread that runs it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from onceward.errors import ConfigurationError
from onceward.storage import LocalStorage, local_path

_QUERY_ID = "sql.streaming.queryId"
_LETS_GO_WITHIN_S = 30.0
_LOOK_S = 0.01


def recorded_query(checkpoint: Path) -> str | None:
    """The id in Spark's `metadata`; None before the first start, and where the file is torn: Spark says so itself."""
    try:
        document = json.loads((checkpoint / "metadata").read_text())
    except (OSError, ValueError):
        return None
    found = document.get("id") if isinstance(document, dict) else None
    return found if isinstance(found, str) else None


def put_back(checkpoint: Path, query: str | None) -> bool:
    """Write Spark's `metadata` again if it is gone: it would go on from its logs under another id."""
    if query is None or (checkpoint / "metadata").exists():
        return False
    return LocalStorage(checkpoint).create("metadata", json.dumps({"id": query}, separators=(",", ":")).encode())


def running_query(batch: DataFrame) -> str | None:
    """The id of the query that calls `foreachBatch` now, as Spark has noted it in its thread."""
    return batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)


def refuse_another_query(batch: DataFrame, checkpoint: Path) -> str | None:
    """The id of the running query, if the checkpoint is its own; `ConfigurationError` if not.

    Epochs of another query have other barriers: rows would be staged under one and decided by the other.
    """
    running, recorded = running_query(batch), recorded_query(checkpoint)
    if running is not None and running != recorded:
        whose = f"that of the query {recorded}" if recorded else "of no query yet"
        raise ConfigurationError(
            f"the query {running} runs on another checkpoint: the one given to onceward, {checkpoint}, is {whose}",
            hint="give onceward and writeStream.option('checkpointLocation', ...) the same directory; nothing was "
            "staged",
        )
    return running


def wait_for_name(session: SparkSession, name: str) -> None:
    """Until Spark has let go of a query of this name that has ended: for a moment it still refuses another one."""
    deadline = time.monotonic() + _LETS_GO_WITHIN_S
    while time.monotonic() < deadline:
        if not any(query.name == name and not query.isActive for query in session.streams.active):
            return
        time.sleep(_LOOK_S)


def is_running_on(checkpoint: Path) -> bool | None:
    """Whether a query of this process has this checkpoint; None where Spark does not tell.

    Asked for a query that its user has started, of which we have no handle, and maybe no epoch yet.
    """
    session = SparkSession._instantiatedSession
    if session is None or session.sparkContext._jsc is None:
        return False
    try:
        queries = list(session._jsparkSession.sharedState().activeStreamingQueries().values())
        roots = [str(query.resolvedCheckpointRoot()) for query in queries]
    except Exception:
        return None
    return any(local_path(root) == checkpoint for root in roots if root.startswith(("file:", "/")))
