"""`onceward run` of a job with a restart strategy: the parent, which starts the driver and says why it does again."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final

import typer
from rich.markup import escape
from rich.table import Table

from onceward.cli.show import err, show_json
from onceward.clock import SystemClock
from onceward.durations import spoken
from onceward.errors import RestartsExhausted
from onceward.job import checkpoint_reached, life_log
from onceward.restart import Life, Notifier, Restarts, RestartStrategy, Supervisor, SupervisorLimits, describe

if TYPE_CHECKING:
    from onceward.cli.run import RunOptions
    from onceward.job import Job

_SHOWN: Final = 20
_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_EXIT_ON_OOM: Final = "-XX:+ExitOnOutOfMemoryError"


def supervise(job: Job, options: RunOptions, strategy: RestartStrategy) -> None:
    """Until it is over; ends with the driver's exit code, or with `RestartsExhausted`."""
    lives = life_log(job)
    restarts = Restarts(strategy, lives, SystemClock(), lambda: checkpoint_reached(job))
    supervisor = Supervisor(
        job.name,
        lambda was_ready: [*_python(), "-m", "onceward", *options.arguments(with_accept=not was_ready)],
        restarts,
        Notifier(job.name, options.ready_file),
        limits=SupervisorLimits(heartbeat_s=options.heartbeat_timeout_s, stop_s=options.stop_timeout_s),
        environment=_environment(),
    )
    _stop_on_signals(supervisor)
    end = supervisor.run()
    if end.gave_up is not None:
        _show_history(restarts.lives)
        raise RestartsExhausted(
            f"{job.name} is not started again: {end.gave_up}",
            hint="the table says how each life ended; put it right and run the job again: it goes on where it was",
        )
    if end.exit_code and options.json and end.document is not None:
        show_json({name: value for name, value in end.document.items() if name != "first_line"})
    raise typer.Exit(end.exit_code)


def _python() -> list[str]:
    """This interpreter. Modules of the working directory are found by the driver if they are found here."""
    return [sys.executable] if {"", os.getcwd()} & {*sys.path} else [sys.executable, "-P"]


def _environment() -> dict[str, str]:
    """A JVM that has run out of memory is in no state to go on: it ends, and is replaced."""
    given = os.environ.get(_JAVA_OPTIONS, "")
    return {_JAVA_OPTIONS: f"{given} {_EXIT_ON_OOM}".strip()}


def _stop_on_signals(supervisor: Supervisor) -> None:
    """A closed terminal counts as well, unless `nohup` has said that it does not: the driver has left it."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    numbers += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    for number in numbers:
        signal.signal(number, lambda _number, _frame: supervisor.stop())


def _show_history(lives: list[Life]) -> None:
    table = Table("life", "began", "lasted", "published", "ended", title="how it came to this", title_justify="left")
    for life in lives[-_SHOWN:]:
        if life.ended is None:
            continue
        began = f"{life.begun.at.astimezone():%Y-%m-%d %H:%M:%S}" if life.begun is not None else "?"
        published = f"up to {life.ended.reached.settled}" if life.published else "nothing"
        table.add_row(str(life.number), began, spoken(life.ended.lived_s), published, escape(describe(life.ended)))
    err.print(table)
