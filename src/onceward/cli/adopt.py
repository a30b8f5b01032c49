"""`onceward adopt`: a checkpoint of a plain Spark query becomes a job's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape

from onceward.admin import adopt as write_down
from onceward.admin import consequences, propose_adoption
from onceward.cli.ask import Because, Yes, ask, who
from onceward.cli.load import load_job
from onceward.cli.show import err, out, show_json
from onceward.errors import ConfigurationError
from onceward.identity import JobName
from onceward.job import job_parts
from onceward.sources.file_lists import files_of_epoch
from onceward.spark.query_id import recorded_query
from onceward.storage import local_path

_DELIVER, _SKIP = "deliver", "skip"


def adopt(
    checkpoint: Annotated[str, typer.Argument(help="The query's checkpointLocation. The query must not be running.")],
    job: Annotated[str, typer.Option(metavar="FILE[:JOB]", help="The job that goes on from there.")],
    in_flight: Annotated[
        str | None,
        typer.Option(metavar="deliver|skip", help="What becomes of an epoch that was begun and not decided."),
    ] = None,
    yes: Yes = False,
    because: Because = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Take over the checkpoint of a plain Spark query: shows what was delivered before, and which epoch may be in the
    target in part."""
    loaded, root = load_job(job), local_path(checkpoint)
    if in_flight not in (None, _DELIVER, _SKIP):
        raise ConfigurationError(f"--in-flight {in_flight} is unknown", hint=f"say {_DELIVER} or {_SKIP}")
    if not root.is_dir():
        raise ConfigurationError(f"there is no directory {root}", hint="give the query's checkpointLocation")
    if local_path(loaded.checkpoint) != root:
        raise ConfigurationError(
            f"the job {loaded.name!r} has another checkpoint: {loaded.checkpoint}",
            hint=f"say checkpoint={str(root)!r} in {job}",
        )
    parts = job_parts(loaded, makes_folder=True)
    found = propose_adoption(name=JobName(loaded.name), **parts, query=recorded_query(root))
    shown = list(found.lines)
    if found.in_flight is not None:
        shown += [f"  it ends at {line}" for line in parts["decisions"].sources(found.in_flight)]
        if found.decided >= 0:
            shown += [f"  it begins at {line}" for line in parts["decisions"].sources(found.decided)]
        shown += [f"  {line}" for source in files_of_epoch(root, found.in_flight) for line in source.lines()]
        if in_flight is None and yes:
            raise ConfigurationError(
                f"epoch {found.in_flight} was begun and not decided, and nobody has said what becomes of it",
                hint="look into the target, then say --in-flight deliver or --in-flight skip",
            )
    for line in shown:
        err.print(escape(line))
    skips = _chosen(in_flight) == _SKIP if found.in_flight is not None else False
    reason = ask(consequences(found, skips_in_flight=skips), yes=yes, because=because)
    identity = write_down(found, skips_in_flight=skips, by=who(), at=datetime.now(UTC), because=reason)
    if json:
        document = {"generation": identity.generation, "adopted": identity.adopted, "in_flight": found.in_flight}
        show_json({**document, "skipped": skips})
        return
    out.print(f"[green]adopted[/]: start the job with `onceward run {escape(job)}`")


def _chosen(in_flight: str | None) -> str:
    while in_flight not in (_DELIVER, _SKIP):
        in_flight = typer.prompt(f"Should it be delivered by onceward, or skipped? ({_DELIVER}/{_SKIP})", err=True)
    return str(in_flight)
