"""`onceward replay`: give a target that went back what it lacks."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from onceward.admin import Replay, plan_replay
from onceward.admin import replay as publish_again
from onceward.cli.load import load_job
from onceward.cli.show import out, show_json
from onceward.job import job_context


def replay(
    target: Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="A Python file that defines a Job.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be published again.")] = False,
    out_of_order: Annotated[
        bool, typer.Option("--out-of-order", help="Also where the target has newer epochs than one that it lacks.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Publish again exactly the epochs that a restored target lacks, from what `keep_published` has kept. Stop the job
    first."""
    context = job_context(load_job(target))
    planned = plan_replay(context, out_of_order=out_of_order)
    if not json:
        _show(planned)
    if planned and not dry_run:
        if not yes and not json:
            typer.confirm("Publish them again?", abort=True)
        publish_again(context, out_of_order=out_of_order)
    if json:
        show_json({"replayed": not dry_run, "epochs": planned})
    elif planned and not dry_run:
        out.print("[green]published[/]; the job can be started")


def _show(planned: list[Replay]) -> None:
    if not planned:
        out.print("the targets lack [green]nothing[/] of what is kept")
    for one in planned:
        how = " · by committing what is prepared" if one.prepared else ""
        out.print(f"epoch {one.epoch} · sink {escape(one.sink)} · {len(one.slots)} slots · {one.rows} rows{how}")
