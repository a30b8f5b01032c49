"""`onceward transactions`: what waits in the targets of a job, what becomes of it, and doing that by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape

from onceward.admin import (
    InDoubt,
    Verdict,
    abort_by_hand,
    abort_strays,
    commit_by_hand,
    in_doubt,
    is_own,
    strays,
    to_abort,
)
from onceward.cli.ask import Because, Yes, ask, who
from onceward.cli.commands import Commands
from onceward.cli.load import load_job
from onceward.cli.show import out, show_age, show_json
from onceward.epoch import RunContext
from onceward.job import job_context

transactions = Commands(help="Show the transactions that wait in a job's targets; commit or abort one by hand.")

Target = Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="A Python file that defines a Job.")]
Name = Annotated[str, typer.Argument(help="The transaction's name, as `list` prints it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_COLOURS = {Verdict.COMMIT: "yellow", Verdict.ABORT: "red", Verdict.WAIT: "cyan", Verdict.ASK: "magenta"}


@transactions.command("list")
def list_(
    target: Target,
    all_: Annotated[
        bool, typer.Option("--all", help="Also those of other generations and of sinks that were removed.")
    ] = False,
    json: Json = False,
) -> None:
    """Every transaction of the job in its targets: its epoch and age, what becomes of it, and why."""
    context = job_context(load_job(target))
    found = in_doubt(context) + (strays(context) if all_ else [])
    if json:
        show_json([_as_json(one) for one in found])
        return
    if not found:
        out.print("[green]nothing waits[/] in any target of this job")
        return
    for one in found:
        # Not a table: the name must stay on one line, to be copied.
        out.print(f"[bold]{one.transaction}[/]  becomes [{_COLOURS[one.verdict]}]{one.verdict.value}[/]")
        whose = f" · generation {one.generation}" if all_ else ""
        out.print(f"  epoch {one.epoch} · slot {one.slot} · age {show_age(one.age_s)} · sink {escape(one.sink)}{whose}")
        out.print(f"  [dim]{one.why}[/]")


@transactions.command()
def commit(target: Target, name: Name, json: Json = False) -> None:
    """Publish the decided epochs, this transaction's among them, in order. Refused if its epoch is not decided."""
    job = load_job(target)
    settled = commit_by_hand(job_context(job), name, job.publish_limits)
    if json:
        show_json({"transaction": name, "settled": settled})
        return
    out.print(f"[green]published[/]: everything up to epoch {settled} is settled")


@transactions.command()
def abort(
    target: Target,
    name: Annotated[str | None, typer.Argument(help="The transaction's name, as `list` prints it.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All that `list --all` shows as `abort`, of other generations and sinks.")
    ] = False,
    generation: Annotated[
        str | None, typer.Option(help="Those too of this generation: nobody runs under it any more, and you know that.")
    ] = None,
    yes: Yes = False,
    because: Because = None,
    json: Json = False,
) -> None:
    """Abort a transaction that nobody will ever publish. Refused if its rows belong to an epoch."""
    if (name is None) != all_:
        raise typer.BadParameter("give the name of one transaction, or --all", param_hint="NAME")
    context = job_context(load_job(target))
    if name is not None and is_own(context, name):
        abort_by_hand(context, name)
        aborted = [name]
    else:
        aborted = _abort_strays(context, to_abort(context, name=name, generation=generation), yes=yes, because=because)
    if json:
        show_json({"transaction": name, "aborted": True} if name is not None else {"aborted": aborted})
        return
    out.print(f"[green]aborted[/] {', '.join(aborted)}" if aborted else "[green]nothing[/] was there to abort")


def _abort_strays(context: RunContext, chosen: list[InDoubt], *, yes: bool, because: str | None) -> list[str]:
    if not chosen:
        return []
    lines = [f"{len(chosen)} transactions are aborted; what is in them is lost for good:"]
    reason = ask([*lines, *(f"  {one.transaction}: {one.why}" for one in chosen)], yes=yes, because=because)
    abort_strays(context, chosen, by=who(), at=datetime.now(UTC), because=reason)
    return [one.transaction for one in chosen]


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
        "generation": one.generation,
    }
