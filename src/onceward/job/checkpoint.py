"""*Recover*: the onceward folder of a Spark checkpoint directory, opened or only looked at."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from onceward.admin import warn_of_strays
from onceward.clock import SystemClock
from onceward.contracts import (
    AnySink,
    Guarantee,
    Hooks,
)
from onceward.contracts.events import Listener
from onceward.epoch import PublishLimits
from onceward.errors import ConfigurationError
from onceward.identity import JobName
from onceward.job.options import accepted_from
from onceward.recovery import (
    Accept,
    Opened,
    Plan,
    has_begun,
    inspect_checkpoint,
    open_checkpoint,
    read_identity,
)
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.current import hooks_for_checkpoint
from onceward.spark.leftovers import remove_leftovers
from onceward.spark.query_id import put_back, recorded_query
from onceward.storage import LocalStorage, directory_id_of, local_path, make_folders, sync_folder

log = logging.getLogger("onceward")


def open_job_checkpoint(
    *,
    name: str,
    checkpoint: str | os.PathLike[str],
    sinks: tuple[AnySink, ...],
    guarantee: Guarantee,
    hooks: Hooks,
    listeners: tuple[Listener, ...] = (),
    accept: str | Iterable[str],
    limits: PublishLimits,
    on_plan: Callable[[Plan], None] = lambda plan: None,
) -> Opened:
    """Open the onceward folder of a Spark checkpoint directory and recover."""
    root = local_path(checkpoint)
    folder = root / "onceward"
    query = recorded_query(root)
    opened = open_checkpoint(
        name=JobName(name),
        sinks=sinks,
        guarantee=guarantee,
        storage=LocalStorage(folder),
        decisions=SparkLogs(root),
        directory_id=directory_id(folder),
        clock=SystemClock(),
        query=query,
        hooks=hooks_for_checkpoint(root, hooks),
        listeners=listeners,
        accepted=accepted_from(accept),
        limits=limits,
        on_plan=on_plan,
    )
    warn_of_strays(opened.context, limits)
    for removed in remove_leftovers(root):
        log.info("removed %s: a driver died, or lost its power, while Spark began", removed)
    if put_back(root, opened.record.query):
        log.warning("Spark's file metadata was gone; it is written again, with the id that the query had")
    return opened


def inspect_job_checkpoint(
    checkpoint: str | os.PathLike[str],
    sinks: tuple[AnySink, ...],
    accepted: frozenset[Accept],
    name: str | None = None,
    limits: PublishLimits | None = None,
) -> Plan:
    """What the next start would do first. Without sinks the receipts in the targets are not looked at."""
    root = local_path(checkpoint)
    return inspect_checkpoint(
        sinks=sinks,
        storage=LocalStorage(root / "onceward"),
        decisions=SparkLogs(root),
        directory_id=existing_directory_id(root / "onceward"),
        clock=SystemClock(),
        query=recorded_query(root),
        accepted=accepted,
        limits=limits,
        name=JobName(name) if name is not None else None,
    )


def is_new(checkpoint: str | os.PathLike[str]) -> bool:
    """Whether nothing has run on it, neither a job nor a query of Spark's alone."""
    root = local_path(checkpoint)
    existing_directory_id(root / "onceward")
    return read_identity(LocalStorage(root / "onceward")) is None and not has_begun(SparkLogs(root))


def directory_id(folder: Path) -> str:
    """A name for the directory itself, by which a copy is noticed. Makes the directory."""
    with _refused_without_access(folder):
        make_folders(folder)
        sync_folder(folder.parent)
        return _id_of_writable(folder)


def existing_directory_id(folder: Path) -> str:
    """The same for one who only looks; empty where there is no such directory."""
    with _refused_without_access(folder):
        return _id_of_writable(folder) if folder.is_dir() else ""


def _id_of_writable(folder: Path) -> str:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied")
    return directory_id_of(folder)


@contextmanager
def _refused_without_access(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"the checkpoint directory {folder.parent} cannot be written: {error.strerror}",
            hint="choose a directory that this user may create and write",
        ) from error
