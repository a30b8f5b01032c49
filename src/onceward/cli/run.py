"""`onceward run`: start the job of a file and stay until it ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Annotated

import typer

from onceward.cli.load import load_job
from onceward.cli.show import err, show_json


def run(
    target: Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="A Python file that defines a Job.")],
    accept: Annotated[
        list[str] | None,
        typer.Option(help="Accept a consequence for this start: fresh-start, copy or rollback."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the final status as JSON.")] = False,
) -> None:
    """Run a job until it ends; Ctrl-C or SIGTERM finish the running epoch first."""
    job = load_job(target)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(job.name).getOrCreate()
    started = job.start(spark, accept=accept or ())

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    if not json:
        err.print(f"[green]running[/] {job.name}: Ctrl-C finishes the running epoch and stops")
    try:
        started.await_termination()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not json:
            err.print("stopping after the running epoch ...")
        started.stop()
    final = started.status()
    if json:
        show_json(final)
    else:
        err.print(f"[green]done[/] {job.name}: settled up to epoch {final.settled}")
