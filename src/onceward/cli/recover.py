"""`onceward recover`: the plan of the next start, printed or carried out."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from onceward.cli.load import load_job
from onceward.cli.show import err, out, show_json
from onceward.contracts import Guarantee, Hooks
from onceward.errors import ConfigurationError
from onceward.job import accepted_from, chosen_sinks, inspect_job_checkpoint, open_job_checkpoint
from onceward.recovery import Plan, Step, describe


def recover(
    checkpoint: Annotated[str, typer.Argument(help="The job's checkpoint directory.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and do nothing.")] = False,
    job: Annotated[
        str | None,
        typer.Option(metavar="FILE[:JOB]", help="The job, so that receipts in its targets are looked at."),
    ] = None,
    accept: Annotated[list[str] | None, typer.Option(help="As for `run`: fresh-start, copy, rollback, adopt.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Publish what is decided and abort what is not, without starting Spark; or only say so."""
    loaded = load_job(job) if job else None
    if loaded is None and not dry_run:
        raise ConfigurationError(
            "recovering needs the job's sinks", hint="add --job FILE[:JOB], or --dry-run to see the plan"
        )
    sinks = chosen_sinks(loaded.sinks, Guarantee(loaded.guarantee)) if loaded else ()
    if dry_run:
        plan = inspect_job_checkpoint(
            checkpoint,
            sinks,
            accepted_from(accept or ()),
            loaded.name if loaded else None,
            loaded.publish_limits if loaded else None,
        )
        _show(plan, as_json=json, looked=loaded is not None)
        return
    assert loaded is not None
    plans: list[Plan] = []
    open_job_checkpoint(
        name=loaded.name,
        checkpoint=checkpoint,
        sinks=sinks,
        guarantee=Guarantee(loaded.guarantee),
        hooks=Hooks(),
        accept=accept or (),
        limits=loaded.publish_limits,
        on_plan=plans.append,
    )
    _show(Plan(tuple(step for plan in plans for step in plan.steps)), as_json=json, looked=True)


def _show(plan: Plan, *, as_json: bool, looked: bool) -> None:
    if as_json:
        show_json({"receipts_looked_at": looked, "steps": [_as_json(step) for step in plan.steps]})
        return
    if not plan.steps:
        out.print("[green]nothing to do[/]: every decided epoch is settled and none is in progress")
    else:
        table = Table("step", "epoch", "why", title="recovery plan", title_justify="left")
        for step in plan.steps:
            table.add_row(type(step).__name__, str(getattr(step, "epoch", "-")), escape(describe(step)))
        out.print(table)
    if not looked:
        err.print("[dim]the targets' receipts were not looked at: add --job FILE[:JOB][/]")


def _as_json(step: Step) -> dict[str, object]:
    return {"step": type(step).__name__, "epoch": getattr(step, "epoch", None), "why": describe(step)}
