"""`onceward savepoint restore`: a new checkpoint from a savepoint; with the job named, its targets are asked first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from onceward.cli.bytes_bar import BytesBar
from onceward.cli.show import err, out, show_json
from onceward.errors import CheckpointRolledBack, ConfigurationError
from onceward.identity import JobName
from onceward.recovery import Accept
from onceward.savepoints import Consequence, Progress, Savepoint, consequences, read_savepoint, restore_savepoint
from onceward.savepoints.restore import refuse_target
from onceward.storage import local_path


def restore(
    path: Annotated[str, typer.Argument(metavar="SAVEPOINT", help="The directory of a savepoint.")],
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The directory to make; nothing may be in it.")
    ],
    job: Annotated[
        str | None,
        typer.Option(metavar="FILE[:JOB]", help="The job: its targets are asked, and its pipeline compared, first."),
    ] = None,
    allow_non_restored_state: Annotated[
        bool, typer.Option("--allow-non-restored-state", help="With --job: state that has no place in it is left.")
    ] = False,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="With --job: an operator, source or sink has another name there."),
    ] = None,
    state_partitions: Annotated[
        int | None, typer.Option(min=1, help="With --job: keep the state in so many partitions (RocksDB, Spark 4.2).")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Another name for the job, for a fork beside the first one.")] = None,
    accept: Annotated[
        str | None, typer.Option(metavar="rollback", help="Targets may have later epochs; their rows come again.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a new checkpoint from a savepoint: a new generation, a new query, all of it or nothing."""
    wanted = Wanted(allow_non_restored_state, _renames(rename or ()), state_partitions)
    _check(accept, job, wanted)
    source, root, progress = local_path(path), local_path(checkpoint), Progress()
    found = _asked(read_savepoint(source), job, name) if job is not None else []
    if not json:
        _say([line for one in found for line in (one.line, *(f"  {pattern}" for pattern in one.patterns))])
    behind = [one for one in found if one.told is not None]
    if behind and accept is None:
        raise _refused(read_savepoint(source), behind)
    refuse_target(source, root)
    with _reworking(source, job, wanted) as rework:
        if not json:
            _say(rework.lines)
        with BytesBar("restoring", lambda: progress, quiet=json):
            done = restore_savepoint(source, root, name=name, progress=progress, rework=rework.act)
    if json:
        show_json(
            {
                "checkpoint": str(root),
                "job": done.record.job,
                "generation": done.record.generation,
                "query": done.record.query,
                "epoch": done.savepoint.epoch,
                "sinks": [_as_json(one) for one in found],
                "changes": list(rework.lines),
            }
        )
        return
    out.print(f"[green]restored[/] {escape(done.record.job)} after epoch {done.savepoint.epoch}: {escape(str(root))}")
    # By another name the job finds nothing of the first one in its targets: that was accepted here.
    if any(one.beside is None for one in behind):
        out.print("start it once with --accept rollback: without that the first start is refused")
    elif job is None:
        out.print("[dim]the targets were not asked: the first start does, and is refused if they have later epochs[/]")


def _check(accept: str | None, job: str | None, wanted: Wanted) -> None:
    if accept not in (None, Accept.ROLLBACK.value):
        raise ConfigurationError(f"--accept {accept} says nothing here", hint="--accept rollback is all there is")
    if job is None and wanted != Wanted():
        raise ConfigurationError("without --job nobody knows the pipeline", hint="add --job FILE[:JOB]")


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        err.print(escape(line))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for of the state, besides that it is restored."""

    allow_non_restored: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    state_partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Reworking:
    """What is done to the copy, and the lines that say so."""

    lines: tuple[str, ...] = ()
    act: Callable[[Path], object] = lambda root: None


@contextmanager
def _reworking(source: Path, target: str | None, wanted: Wanted) -> Iterator[Reworking]:
    """The pipeline of a job that was named is planned by Spark; what does not fit is refused before a byte moves."""
    if target is None:
        yield Reworking()
        return
    from onceward.cli.load import file_of, load_job
    from onceward.cli.session import spark_log, spark_session
    from onceward.job import plan_rework

    job, saved = load_job(target), read_savepoint(source)
    with spark_log(job.name) as log_file:
        planned = plan_rework(
            spark_session(f"restore of {job.name}", job_file=file_of(target), log_file=log_file),
            job,
            topology=saved.topology,
            barrier=saved.barrier,
            allow_non_restored=wanted.allow_non_restored,
            renames=wanted.renames,
            state_partitions=wanted.state_partitions,
        )
        yield Reworking(planned.lines, planned)


def _renames(given: Sequence[str]) -> dict[str, str]:
    for one in given:
        if not all(one.partition("=")):
            raise ConfigurationError(f"--rename {one} is not OLD=NEW", hint="for example --rename dedupe=first-view")
    return dict(one.split("=", 1) for one in given)


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
    also = ", and start the job once with --accept rollback" if any(one.beside is None for one in behind) else ""
    return CheckpointRolledBack(
        f"the savepoint is of epoch {saved.epoch}, and its targets have later epochs. {told}",
        epoch=saved.epoch,
        hint="take a newer savepoint; or restore it for another target; or, if that is what you want, add --accept "
        f"rollback here{also}. Nothing was written",
    )


def _as_json(one: Consequence) -> dict[str, object]:
    return {
        "sink": one.sink,
        "later": one.told,
        "becomes": one.repeated.name.lower(),
        "files": list(one.patterns),
        "beside": one.beside,
    }
