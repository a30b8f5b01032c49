"""`onceward transactions`: what waits in the targets of a job, what becomes of it, and doing that by hand."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from onceward.cli.load import load_job
from onceward.cli.show import out, show_age, show_json
from onceward.epoch import PublishLimits
from onceward.job import job_ground
from onceward.recovery import InDoubt, Verdict, abort_by_hand, commit_by_hand, in_doubt

transactions = typer.Typer(
    help="Show the transactions that wait in a job's targets; commit or abort one by hand.", no_args_is_help=True
)

Target = Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="A Python file that defines a Job.")]
Name = Annotated[str, typer.Argument(help="The transaction's name, as `list` prints it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_COLOURS = {Verdict.COMMIT: "yellow", Verdict.ABORT: "red", Verdict.WAIT: "cyan"}


@transactions.command("list")
def list_(target: Target, json: Json = False) -> None:
    """Every transaction of the job in its targets: its epoch and age, what becomes of it, and why."""
    found = in_doubt(job_ground(load_job(target)))
    if json:
        show_json([_as_json(one) for one in found])
        return
    if not found:
        out.print("[green]nothing waits[/] in any target of this job")
        return
    for one in found:
        # Not a table: the name must stay on one line, to be copied.
        out.print(f"[bold]{one.transaction}[/]  becomes [{_COLOURS[one.verdict]}]{one.verdict.value}[/]")
        out.print(f"  epoch {one.epoch} · slot {one.slot} · age {show_age(one.age_s)} · sink {escape(one.sink)}")
        out.print(f"  [dim]{one.why}[/]")


@transactions.command()
def commit(target: Target, name: Name, json: Json = False) -> None:
    """Publish the decided epochs up to this transaction, in order. Refused if its epoch is not decided."""
    job = load_job(target)
    settled = commit_by_hand(job_ground(job), name, PublishLimits(deadline_s=job.publish_deadline_s))
    if json:
        show_json({"transaction": name, "settled": settled})
        return
    out.print(f"[green]published[/]: everything up to epoch {settled} is settled")


@transactions.command()
def abort(target: Target, name: Name, json: Json = False) -> None:
    """Abort a transaction that nobody will ever publish. Refused if its rows belong to an epoch."""
    abort_by_hand(job_ground(load_job(target)), name)
    if json:
        show_json({"transaction": name, "aborted": True})
        return
    out.print(f"[green]aborted[/] {name}")


def _as_json(one: InDoubt) -> dict[str, object]:
    return {
        "sink": one.sink,
        "transaction": one.transaction,
        "epoch": one.epoch,
        "slot": one.slot,
        "since": one.since,
        "age_s": one.age_s,
        "verdict": one.verdict.value,
        "why": one.why,
    }
