"""`onceward rewind`: let Spark run an epoch again."""

from __future__ import annotations

from typing import Annotated

import typer

from onceward.cli.load import load_job
from onceward.cli.show import out, show_json
from onceward.errors import ConfigurationError
from onceward.job import job_receipts
from onceward.spark.rewind import rewind as rewind_logs
from onceward.storage import local_path


def rewind(
    checkpoint: Annotated[str, typer.Argument(help="The job's checkpoint directory. The job must not be running.")],
    epoch: Annotated[int, typer.Argument(help="The first epoch to run again.")],
    job: Annotated[
        str | None,
        typer.Option(metavar="FILE[:JOB]", help="The job, so that receipts in its targets are looked at first."),
    ] = None,
    went_back: Annotated[
        bool,
        typer.Option("--went-back", help="All targets of the job lost the epoch (TargetRolledBack). Needs --job."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Take Spark's logs back to just before an unpublished epoch. Refused if it is published already."""
    if went_back and job is None:
        raise ConfigurationError("--went-back needs the job", hint="give --job FILE, so that its targets can be asked")
    receipts = job_receipts(load_job(job), checkpoint) if job else ()
    removed = rewind_logs(local_path(checkpoint), epoch, receipts=receipts, went_back=went_back)
    if json:
        show_json({"epoch": epoch, "removed": removed})
        return
    out.print(f"[green]rewound[/] to epoch {epoch}; removed {', '.join(removed) or 'nothing'}")
    out.print("the next start aborts what was staged for it and runs it again")
