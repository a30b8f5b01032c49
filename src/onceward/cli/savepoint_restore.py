"""`onceward savepoint restore`: a new checkpoint from a savepoint; with the job named, its targets are asked first."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from onceward.cli.bytes_bar import BytesBar
from onceward.cli.show import err, out, show_json
from onceward.errors import CheckpointRolledBack, ConfigurationError
from onceward.identity import JobName
from onceward.recovery import Accept
from onceward.savepoints import Consequence, Progress, Savepoint, consequences, read_savepoint, restore_savepoint
from onceward.storage import local_path


def restore(
    path: Annotated[str, typer.Argument(metavar="SAVEPOINT", help="The directory of a savepoint.")],
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The directory to make; nothing may be in it.")
    ],
    job: Annotated[
        str | None,
        typer.Option(metavar="FILE[:JOB]", help="The job: its targets are asked before anything is written."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Another name for the job, for a fork beside the first one.")] = None,
    accept: Annotated[
        str | None, typer.Option(metavar="rollback", help="Targets may have later epochs; their rows come again.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a new checkpoint from a savepoint: a new generation, a new query, all of it or nothing."""
    if accept not in (None, Accept.ROLLBACK.value):
        raise ConfigurationError(f"--accept {accept} says nothing here", hint="--accept rollback is all there is")
    source, root, progress = local_path(path), local_path(checkpoint), Progress()
    found = _asked(read_savepoint(source), job, name) if job is not None else []
    if not json:
        for one in found:
            err.print(escape(one.line))
            for pattern in one.patterns:
                err.print(f"  [dim]{escape(pattern)}[/]")
    behind = [one for one in found if one.told is not None]
    if behind and accept is None:
        raise _refused(read_savepoint(source), behind)
    with BytesBar("restoring", lambda: progress, quiet=json):
        done = restore_savepoint(source, root, name=name, progress=progress)
    if json:
        show_json(
            {
                "checkpoint": str(root),
                "job": done.record.job,
                "generation": done.record.generation,
                "query": done.record.query,
                "epoch": done.savepoint.epoch,
                "sinks": [_as_json(one) for one in found],
            }
        )
        return
    out.print(f"[green]restored[/] {escape(done.record.job)} after epoch {done.savepoint.epoch}: {escape(str(root))}")
    if behind:
        out.print("start it once with --accept rollback: without that the first start is refused")
    elif job is None:
        out.print("[dim]the targets were not asked: the first start does, and is refused if they have later epochs[/]")


def _asked(saved: Savepoint, target: str, name: str | None) -> list[Consequence]:
    """Only who names a job has to wait for PySpark."""
    from onceward.cli.load import load_job
    from onceward.contracts import Guarantee
    from onceward.job import chosen_sinks
    from onceward.recovery import failures_as_target_unavailable

    job, wanted = load_job(target), name or saved.job
    if job.name != wanted:
        raise ConfigurationError(
            f"the savepoint is of the job {saved.job!r}, and {target} defines {job.name!r}",
            hint=f"add --name {job.name!r} to restore it for that job, as a fork of the first one",
        )
    with failures_as_target_unavailable():
        return consequences(saved, chosen_sinks(job.sinks, Guarantee(job.guarantee)), name=JobName(wanted))


def _refused(saved: Savepoint, behind: list[Consequence]) -> CheckpointRolledBack:
    told = "; ".join(f"sink {one.sink!r} has {one.told}: {one.repeated.value}" for one in behind)
    return CheckpointRolledBack(
        f"the savepoint is of epoch {saved.epoch}, and its targets have later epochs. {told}",
        epoch=saved.epoch,
        hint="take a newer savepoint; or restore it for another target, or under another --name; or, if that is what "
        "you want, add --accept rollback here, and start the job once with --accept rollback. Nothing was written",
    )


def _as_json(one: Consequence) -> dict[str, object]:
    return {"sink": one.sink, "later": one.told, "becomes": one.repeated.name.lower(), "files": list(one.patterns)}
