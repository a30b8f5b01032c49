"""`onceward dashboard`: a page for running and stopped jobs, until Ctrl-C."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from onceward.cli.ask import who
from onceward.cli.show import err, out, show_json
from onceward.dashboard import DashboardConfig, Place, Places
from onceward.dashboard.places import JobAccess, is_checkpoint
from onceward.dashboard.server import DashboardServer
from onceward.errors import ConfigurationError
from onceward.storage import local_path


def dashboard(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CHECKPOINT | FILE:JOB | FOLDER]...", help="What to show; without any, this folder."),
    ] = None,
    host: Annotated[str, typer.Option(help="The IP address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    name: Annotated[
        list[str] | None, typer.Option(help="A host name by which it may be called, as behind a proxy.")
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="/PATH", help="The path under which a reverse proxy shows it.")] = "",
    savepoints: Annotated[
        list[str] | None, typer.Option(metavar="FOLDER", help="A folder in which savepoints lie; may be given again.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Let nobody commit or abort anything.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Show jobs in a browser: every epoch and every transaction. Prints an address with a token; Ctrl-C ends it."""
    config = DashboardConfig(host=host, port=port, names=tuple(name or ()), prefix=prefix, read_only=read_only)
    places = places_of(targets or ["."], savepoints=savepoints or ())
    server = DashboardServer(places, config, actor=who())

    def ready() -> None:
        if json:
            show_json({"url": server.url, "entrance": server.entrance, "read_only": read_only})
        else:
            out.print(f"[green]the dashboard[/] is at {escape(server.entrance)}", soft_wrap=True)
            err.print("[dim]whoever has this address may look; Ctrl-C ends it[/]")
        if open_:
            webbrowser.open(server.entrance)

    server.serve(ready)


def places_of(targets: list[str], *, savepoints: Sequence[str] = ()) -> Places:
    """What was named: a job in a file, a checkpoint, or a folder in which checkpoints are; and where savepoints lie."""
    named: list[Place] = []
    folders: list[Path] = []
    for target in targets:
        if target.endswith(".py") or ".py:" in target:
            named.append(_place_of_job(target))
            continue
        path = local_path(target)
        if not path.is_dir():
            raise ConfigurationError(
                f"{path} is no folder", hint="give a checkpoint, a folder with checkpoints in it, or FILE:JOB"
            )
        if is_checkpoint(path):
            named.append(Place(path))
        else:
            folders.append(path)
    return Places(named, folders, savepoints=[local_path(one) for one in savepoints])


def _place_of_job(target: str) -> Place:
    """Only who names a file has to wait for PySpark."""
    from onceward.cli.load import load_job
    from onceward.job import job_context, shown_options

    job = load_job(target)
    access = JobAccess(
        file=target, context=lambda: job_context(job), limits=job.publish_limits, options=shown_options(job)
    )
    return Place(local_path(job.checkpoint), access)
