"""`onceward status`: where every epoch of a checkpoint stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from onceward.api import DriverGone, NoDriver, find_driver
from onceward.cli.session import spark_log, spark_session
from onceward.cli.show import out, show_age, show_json
from onceward.observe import (
    CheckpointStatus,
    DriverStatus,
    EpochState,
    read_state,
    read_status,
    with_driver,
    with_in_doubt,
)
from onceward.storage import local_path

_COLOURS = {"settled": "green", "decided": "yellow", "staged": "cyan", "planned": "dim", "lost": "bold red"}
_MEANING = {
    "planned": "Spark has fixed where it ends; it is being computed",
    "staged": "pre-committed in every sink, waiting for Spark's decision",
    "decided": "complete in Spark, waiting to be published",
    "settled": "published: every sink has its receipts",
    "lost": "decided, but no valid manifest: see `onceward rewind` and `onceward resolve`",
}


def status(
    checkpoint: Annotated[str, typer.Argument(help="The job's checkpoint directory.")],
    job: Annotated[
        str | None,
        typer.Option(metavar="FILE[:JOB]", help="The job, so that its targets are asked for transactions in doubt."),
    ] = None,
    state: Annotated[
        bool, typer.Option("--state", help="Start a Spark, and show its state beside the offsets it belongs to.")
    ] = False,
    epoch: Annotated[int | None, typer.Option(help="With --state: at the end of this epoch, not the newest.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="With --state: so many rows of each operator.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the epochs of a checkpoint, what is pending, and the sinks. Works while the job runs."""
    if epoch is not None and not state:
        raise typer.BadParameter("it says of which epoch --state is to show the state", param_hint="--epoch")
    found = _with_driver(read_status(local_path(checkpoint)))
    if state:
        found = replace(found, state=_state(local_path(checkpoint), epoch, rows))
    if job is not None:
        found = _asked(found, job, checkpoint)
    if json:
        show_json(found)
        return
    out.print(f"[bold]{found.job}[/]  generation {found.generation}  {found.checkpoint}", markup=True)
    reached = {"planned": found.planned, "decided": found.decided, "settled": found.settled}
    out.print(" · ".join(f"{step} {epoch if epoch >= 0 else 'none'}" for step, epoch in reached.items()))
    _show_driver(found.driver)
    if found.sinks:
        out.print(_sinks(found))
    for sink in found.sinks:
        out.print(f"[dim]{escape(sink.name)}: {escape(sink.mechanism)}[/]")
    out.print(_epochs(found))
    for stage in dict.fromkeys(one.state for one in found.epochs):
        out.print(f"[{_COLOURS[stage]}]{stage}[/]: {_MEANING[stage]}")
    for one in found.resolutions:
        gone = " [dim](withdrawn)[/]" if one.withdrawn else ""
        out.print(f"[bold]resolution {one.number}[/]: {escape(one.what)}{gone}")
        out.print(f"  [dim]by {escape(one.by)} at {one.at:%Y-%m-%d %H:%M:%S} UTC: {escape(one.because)}[/]")
    if found.state is not None:
        _show_state(found.state)


def _with_driver(found: CheckpointStatus) -> CheckpointStatus:
    """Also what the running driver knows, if one answers."""
    driver = find_driver(local_path(found.checkpoint))
    if isinstance(driver, NoDriver):
        return found
    try:
        return with_driver(found, driver)
    except DriverGone:
        return found


def _show_driver(driver: DriverStatus | None) -> None:
    if driver is None:
        out.print("[dim]from files: no running driver answers[/]")
        return
    doing = "stopping" if driver.stopping else "running" if driver.active else "ended"
    waiting = f"{driver.unpublished} of {driver.limit} epochs unpublished"
    out.print(f"[green]from the running driver[/]: process {driver.pid} on {escape(driver.host)}, {doing}, {waiting}")
    if driver.outage is not None:
        told = "{sink} does not take epoch {epoch}: {why}; next try {next_try}".format(**driver.outage)
        out.print(f"[yellow]outage[/]: {escape(told)}")
    if driver.error is not None:
        out.print(f"[red]error[/]: {escape(driver.error)}")


def _asked(found: CheckpointStatus, job: str, checkpoint: str) -> CheckpointStatus:
    """With what waits in the targets. Without a job there is none to ask, nor a need to wait for PySpark."""
    from onceward.admin import in_doubt
    from onceward.cli.load import load_job
    from onceward.job import job_context

    return with_in_doubt(found, in_doubt(job_context(replace(load_job(job), checkpoint=checkpoint))))


def _state(checkpoint: Path, epoch: int | None, rows: int) -> EpochState:
    with spark_log("status") as log_file:
        return read_state(spark_session("onceward status", log_file=log_file), checkpoint, epoch=epoch, most=rows)


def _show_state(state: EpochState) -> None:
    """As one line, if there is one operator: `epoch 100: offset views (0, 60000) · state (app1, 50000)`."""
    offsets = f"offset {state.offsets}" if state.offsets else ""
    parts = []
    for one in state.operators:
        name = "state" if len(state.operators) == 1 else f"state of {one.name} {one.operator}"
        rows = " ".join(one.rows) or "empty"
        parts.append(f"{name} {rows}{' …' if one.has_more else ''}")
    separator = " · " if len(state.operators) == 1 else "\n  "
    out.print(f"[bold]epoch {state.epoch}[/]: {escape(separator.join([part for part in [offsets, *parts] if part]))}")


def _sinks(found: CheckpointStatus) -> Table:
    asked = any(sink.in_doubt is not None for sink in found.sinks)
    columns = ["sink", "guarantee", "pending epochs", "rows"]
    table = Table(*columns, *(["in doubt", "oldest"] if asked else []), title="sinks", title_justify="left")
    for sink in found.sinks:
        cells = [sink.name, sink.guarantee or "-", str(sink.pending_epochs), f"{sink.pending_rows:,}"]
        table.add_row(*cells, *([str(sink.in_doubt), show_age(sink.oldest_in_doubt_s)] if asked else []))
    return table


def _epochs(found: CheckpointStatus) -> Table:
    columns = [f"rows in {sink.name}" for sink in found.sinks]
    reads_kafka = any(epoch.offsets for epoch in found.epochs)
    columns += ["offsets in Kafka"] if reads_kafka else []
    table = Table("epoch", "state", "planned (UTC)", "settled (UTC)", *columns, title="epochs", title_justify="left")
    for epoch in found.epochs:
        state = f"[{_COLOURS[epoch.state]}]{epoch.state}[/]"
        state += f" (taken over {epoch.takeovers}x)" if epoch.takeovers else ""
        times = (f"{time:%H:%M:%S}" if time else "-" for time in (epoch.planned_at, epoch.settled_at))
        rows = (f"{epoch.rows[sink.name]:,}" if sink.name in epoch.rows else "-" for sink in found.sinks)
        table.add_row(str(epoch.epoch), state, *times, *rows, *([epoch.offsets or "-"] if reads_kafka else []))
    return table
