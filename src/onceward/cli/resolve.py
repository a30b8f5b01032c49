"""`onceward resolve`: the ways on from a refusal that only a person can choose, each asked for and written down."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from onceward.admin import (
    Proposal,
    propose_accept_loss,
    propose_epoch_is_published,
    propose_identity,
    propose_slot_is_in,
    propose_withdraw,
    record,
    write_identity,
)
from onceward.cli.ask import Because, Yes, ask, who
from onceward.cli.commands import Commands
from onceward.cli.load import load_job
from onceward.cli.show import out, show_json
from onceward.epoch import RunContext
from onceward.identity import JobName, SinkName
from onceward.job import job_context, job_parts

resolve = Commands(help="Say what onceward cannot know, so that a job which was refused goes on. Stop the job first.")
Target = Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="A Python file that defines a Job.")]
Epoch = Annotated[int, typer.Argument(help="The epoch, as the refusal names it.")]
Sink = Annotated[str | None, typer.Option(help="In this sink only; without it, in all.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@resolve.command("slot-is-in")
def slot_is_in(
    target: Target,
    epoch: Annotated[int, typer.Option(help="The epoch.")],
    sink: Annotated[str, typer.Option(help="The sink's name.")],
    slot: Annotated[int, typer.Option(help="The slot's number.")],
    yes: Yes = False,
    because: Because = None,
    json: Json = False,
) -> None:
    """The rows of one slot are in the target, whoever brought them there: it is left out of publishing."""
    context = job_context(load_job(target))
    proposal = propose_slot_is_in(context, epoch=epoch, sink=SinkName(sink), slot=slot)
    _record(context, proposal, yes=yes, because=because, json=json)


@resolve.command("epoch-is-published")
def epoch_is_published(
    target: Target, epoch: Epoch, sink: Sink = None, yes: Yes = False, because: Because = None, json: Json = False
) -> None:
    """All rows of an epoch are in the target: nothing more of it is published."""
    context = job_context(load_job(target))
    proposal = propose_epoch_is_published(context, epoch=epoch, sink=SinkName(sink) if sink is not None else None)
    _record(context, proposal, yes=yes, because=because, json=json)


@resolve.command("accept-loss")
def accept_loss(
    target: Target, epoch: Epoch, sink: Sink = None, yes: Yes = False, because: Because = None, json: Json = False
) -> None:
    """What is not published of an epoch is given up, and the job goes on without it."""
    context = job_context(load_job(target))
    proposal = propose_accept_loss(context, epoch=epoch, sink=SinkName(sink) if sink is not None else None)
    _record(context, proposal, yes=yes, because=because, json=json)


@resolve.command()
def withdraw(
    target: Target,
    number: Annotated[int, typer.Argument(help="The resolution's number, as `onceward status` lists it.")],
    yes: Yes = False,
    because: Because = None,
    json: Json = False,
) -> None:
    """A resolution no longer holds: it was a mistake, or its file is damaged."""
    context = job_context(load_job(target), past_damage=True)
    _record(context, propose_withdraw(context, number), yes=yes, because=because, json=json)


@resolve.command()
def identity(
    target: Target,
    generation: Annotated[
        str | None, typer.Option(help="Which generation this checkpoint is, if that is known.")
    ] = None,
    yes: Yes = False,
    because: Because = None,
    json: Json = False,
) -> None:
    """The checkpoint's identity cannot be read: find out from what is staged and delivered, and write it down anew."""
    job = load_job(target)
    parts = job_parts(job, makes_folder=True)
    new = propose_identity(name=JobName(job.name), **parts, generation=generation)
    reason = ask(new.proposal.lines, yes=yes, because=because)
    write_identity(parts["storage"], new, by=who(), at=datetime.now(UTC), because=reason)
    if json:
        show_json({"generation": new.identity.generation, "identity": new.identity.number})
        return
    out.print(f"[green]written down[/]: this checkpoint is generation {new.identity.generation}")


def _record(context: RunContext, proposal: Proposal, *, yes: bool, because: str | None, json: bool) -> None:
    reason = ask(proposal.lines, yes=yes, because=because)
    done = record(context.storage, proposal, by=who(), at=datetime.now(UTC), because=reason)
    if json:
        show_json({"resolution": done.number, "kind": done.kind.value, "epoch": done.epoch, "sink": done.sink})
        return
    out.print(f"[green]written down[/] as resolution {done.number}; the next start goes by it")
