"""`onceward poison`: the rows that keep an epoch from being published, and taking them out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from onceward.admin import divert_poison, find_poison
from onceward.cli.commands import Commands
from onceward.cli.load import load_job
from onceward.cli.show import out, show_json
from onceward.job import job_context

poison = Commands(help="Show the rows that a target rejects, and divert them to a file so that the job can go on.")
Target = Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="A Python file that defines a Job.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@poison.command()
def show(target: Target, json: Json = False) -> None:
    """The rows of the first unpublished epoch that a target rejects, and why. Changes nothing."""
    rows = find_poison(job_context(load_job(target)))
    if json:
        show_json(rows)
        return
    if not rows:
        out.print("[green]no row[/] of an unpublished epoch is rejected")
    for row in rows:
        out.print(
            f"[bold red]rejected[/] epoch {row.epoch} · sink {escape(row.sink)} · slot {row.slot} · row {row.row}"
        )
        out.print(f"  {escape(row.why)}")
        out.print(f"  [dim]{escape(str(row.values))}[/]")


@poison.command()
def divert(
    target: Target,
    to: Annotated[Path, typer.Option(help="The folder that gets the rejected rows, as JSON lines.")],
    json: Json = False,
) -> None:
    """Write the rejected rows to a file and leave them out: the next start publishes the rest. Stop the job first."""
    files = divert_poison(job_context(load_job(target), past_damage=True), to.resolve())
    if json:
        show_json({"files": [str(path) for path in files]})
        return
    for path in files:
        out.print(f"[green]diverted[/] to {path}")
    out.print("the next start publishes the epoch without these rows, and goes on")
