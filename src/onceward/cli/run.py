"""`onceward run`: start the job of a file and stay until it ends."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Annotated

import typer

from onceward.cli.load import file_of, load_job
from onceward.cli.session import spark_session
from onceward.cli.show import err, show_json

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
    json: Annotated[bool, typer.Option("--json", help="Print the final status as JSON.")] = False,
) -> None:
    """Run a job until it ends; Ctrl-C or SIGTERM finish the running epoch first."""
    job = load_job(target)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = spark_session(job.name, job_file=file_of(target), master=master, settings=conf or (), packages=packages)
    started = job.start(spark, accept=accept or ())

    # Only noted, not raised: an exception in the middle of a call to Spark would be logged with its traceback.
    told_to_stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: told_to_stop.set())
    if not json:
        err.print(f"[green]running[/] {job.name}: Ctrl-C finishes the running epoch and stops")
    while not started.await_termination(timeout_s=_LOOK_S):
        if told_to_stop.is_set():
            if not json:
                err.print("stopping after the running epoch ...")
            started.stop()
            break
    final = started.status()
    if json:
        show_json(final)
    else:
        err.print(f"[green]done[/] {job.name}: settled up to epoch {final.settled}")
