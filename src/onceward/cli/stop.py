"""`onceward stop`: let a running job finish its epoch, publish what is decided, and end."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from onceward.api import DriverGone, NoDriver, find_driver, read_discovery
from onceward.cli.savepoint_take import from_files, show_taken
from onceward.cli.show import err, out, show_json, show_published
from onceward.errors import ConfigurationError, EpochTimedOut, TargetUnavailable
from onceward.observe import read_status
from onceward.savepoints.take import refuse_folder
from onceward.storage import local_path


def stop(
    checkpoint: Annotated[str, typer.Argument(help="The job's checkpoint directory.")],
    timeout: Annotated[float, typer.Option(min=0, help="How many seconds to wait until it has ended.")] = 120.0,
    savepoint: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Then take a savepoint in this folder, of the last epoch.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Stop a running job between two epochs, and wait until it has ended. It must have been started with --api."""
    root, folder = local_path(checkpoint), local_path(savepoint) if savepoint is not None else None
    if folder is not None:
        refuse_folder(root, folder)
    read_status(root)  # refuses what is no checkpoint
    driver = find_driver(root)
    if isinstance(driver, NoDriver):
        raise ConfigurationError(f"nobody can be asked to stop: {driver.why}", hint=_by_signal(driver))
    found = driver.found
    if folder is not None and driver.get("/v1/status").get("removes_checkpoint"):
        raise ConfigurationError(
            "this job removes its checkpoint when it stops (on_stop='delete'): there would be nothing to take",
            hint="`onceward savepoint take` takes one while it runs; then stop it",
        )
    if not json:
        err.print(f"stopping process {found.pid} on {escape(found.host)} after the running epoch ...")
    try:
        driver.stop()
    except DriverGone as gone:
        if read_discovery(root) == found:
            raise TargetUnavailable(str(gone), hint=f"kill -TERM {found.pid} on {found.host} does the same") from gone
    if not driver.await_end(timeout):
        raise EpochTimedOut(
            f"the job was asked to stop and has not ended within {timeout:.0f} s",
            hint="it stops when its epoch is staged and what is decided is published, or gives up after a minute; give "
            "the command again to wait on, and see `onceward status`",
        )
    after = read_status(root)
    waiting = max(0, after.decided - after.settled)
    taken = from_files(root, folder, quiet=json) if folder is not None else None
    if json:
        stopped = {"stopped": True, "pid": found.pid, "decided": after.decided, "settled": after.settled}
        show_json(stopped if taken is None else {**stopped, "savepoint": asdict(taken)})
        return
    out.print(f"[green]stopped[/] {escape(after.job)}: {show_published(after.settled)}")
    if waiting:
        out.print(f"[yellow]{waiting} decided epochs wait[/]: the next start publishes them first")
    if taken is not None:
        show_taken(taken, json=False)


def _by_signal(driver: NoDriver) -> str:
    if driver.pid is not None:
        return f"kill -TERM {driver.pid} does the same, if that process is the job's driver"
    return (
        "if it runs, send SIGTERM to its process, which does the same; to use this command, start it with "
        "`onceward run FILE --api`"
    )
