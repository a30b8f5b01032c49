"""`onceward run`: start the job of a file and stay until it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from onceward.cli.load import file_of, load_job, with_api
from onceward.cli.logs import Log, log_as
from onceward.cli.progress import Progress
from onceward.cli.session import spark_log, spark_session
from onceward.cli.show import err, show_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from onceward.job import Job
    from onceward.spark.run import RunStatus

_LOOK_S = 0.5


def run(
    target: Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="A Python file that defines a Job.")],
    accept: Annotated[
        list[str] | None,
        typer.Option(help="Accept a consequence for this start: fresh-start, copy, rollback or adopt."),
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master, such as local[4] or spark://host:7077.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may be given more than once.")
    ] = None,
    packages: Annotated[
        str | None, typer.Option(help="Jars that the job needs, as Maven coordinates with commas between them.")
    ] = None,
    api: Annotated[
        bool, typer.Option("--api", help="Let programs on this host ask the running job, and stop it: `onceward stop`.")
    ] = False,
    api_bind: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The same at this address; 127.0.0.1 and a free port else.")
    ] = None,
    log: Annotated[Log, typer.Option(help="How log lines look on standard error: text, or json.")] = Log.TEXT,
    spark_log_shown: Annotated[
        bool, typer.Option("--spark-log", help="Show what Spark logs, too; else it is kept in a file until the end.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the final status as JSON.")] = False,
) -> None:
    """Run a job until it ends; Ctrl-C or SIGTERM finish the running epoch first."""
    quiet = log_as(log, quiet=json)
    job = with_api(load_job(target), asked=api, bind=api_bind)
    with spark_log(job.name, shown=spark_log_shown) as log_file:
        if not quiet:
            err.print(f"starting Spark for {escape(job.name)} ...")
        spark = spark_session(
            job.name,
            job_file=file_of(target),
            master=master,
            settings=conf or (),
            packages=packages,
            log_file=log_file,
        )
        final = _run(job, spark, accept or (), quiet=quiet)
    if json:
        show_json(final)
    elif not quiet:
        err.print(f"[green]done[/] {escape(job.name)}: published up to epoch {final.settled}")


def _run(job: Job, spark: SparkSession, accept: Sequence[str], *, quiet: bool) -> RunStatus:
    """Until it ends, or somebody ends it."""
    started = job.start(spark, accept=accept)
    # Only noted, not raised: an exception in the middle of a call to Spark would be logged with its traceback.
    told_to_stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: told_to_stop.set())
    if not quiet:
        sinks = escape(", ".join(str(sink.name) for sink in job.sinks))
        err.print(f"[green]running[/] {escape(job.name)} into {sinks}: Ctrl-C finishes the running epoch and stops")
    with Progress(quiet=quiet) as progress:
        while not started.await_termination(timeout_s=_LOOK_S):
            progress.show(started)
            if told_to_stop.is_set():
                if not quiet:
                    err.print("stopping after the running epoch ...")
                started.stop()
                break
    return started.status()
