"""`onceward run`: start the job of a file and stay until it ends; in a child process where it is to be restarted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from onceward.cli.drive import drive
from onceward.cli.load import load_job, with_api
from onceward.cli.logs import Log, log_as
from onceward.cli.supervise import supervise
from onceward.durations import in_seconds
from onceward.job import accepted_from
from onceward.restart import NoRestart, Notifier, RestartStrategy, ToSupervisor, strategy_from

Api = Annotated[
    bool, typer.Option("--api", help="Let programs on this host ask the running job, and stop it: `onceward stop`.")
]
ApiBind = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The same at this address; 127.0.0.1 and a free port else.")
]
Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Show the job on a page of its own, beside the API; prints its address.")
]
Traces = Annotated[bool, typer.Option("--traces", help="Send every epoch to an OpenTelemetry collector, as a trace.")]
SparkLog = Annotated[
    bool,
    typer.Option("--spark-log", help="Show what Spark logs, too; else it goes to a file, named if Spark fails."),
]
LogLines = Annotated[Log, typer.Option(help="How log lines look on standard error: text, or json.")]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What was typed."""

    target: str
    accept: tuple[str, ...]
    master: str | None
    conf: tuple[str, ...]
    packages: str | None
    shows_spark_log: bool
    json: bool
    quiet: bool
    log: Log
    api: bool
    api_bind: str | None
    stop_timeout_s: float
    heartbeat_timeout_s: float
    ready_file: Path | None
    dashboard: bool = False
    traces: bool = False

    def arguments(self, *, with_accept: bool) -> list[str]:
        """For a driver that is to do the same. What was accepted was accepted for one start, not for each."""
        given = ["run", self.target, f"--stop-timeout={self.stop_timeout_s}"]
        given += [f"--heartbeat-timeout={self.heartbeat_timeout_s}"]
        given += [f"--accept={flag}" for flag in self.accept if with_accept]
        given += [f"--conf={one}" for one in self.conf]
        given += [] if self.master is None else [f"--master={self.master}"]
        given += [] if self.packages is None else [f"--packages={self.packages}"]
        given += ["--spark-log"] if self.shows_spark_log else []
        given += ["--api"] if self.api else []
        given += [] if self.api_bind is None else [f"--api-bind={self.api_bind}"]
        given += ["--dashboard"] if self.dashboard else []
        given += ["--traces"] if self.traces else []
        given += [f"--log={self.log.value}"]
        return given + (["--json"] if self.json else [])


def run(
    target: Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="A Python file that defines a Job.")],
    accept: Annotated[
        list[str] | None,
        typer.Option(metavar="FLAG", help="Accept a consequence for this start: fresh-start, copy, rollback or adopt."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master, such as local[4] or spark://host:7077.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may be given more than once.")
    ] = None,
    packages: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Jars that the job needs, as Maven coordinates with commas between them."),
    ] = None,
    api: Api = False,
    api_bind: ApiBind = None,
    dashboard: Dashboard = False,
    traces: Traces = False,
    log: LogLines = Log.TEXT,
    restart: Annotated[
        str | None,
        typer.Option(metavar="STRATEGY", help="Instead of the job's own: none, fixed-delay:3:10s, exponential-delay."),
    ] = None,
    stop_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long a stop may take before the running epoch is cancelled.")
    ] = "60 s",
    heartbeat_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="When a supervised driver whose JVM does not answer is replaced.")
    ] = "60 s",
    ready_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A file that exists while the job is recovered and runs.")
    ] = None,
    spark_log_shown: SparkLog = False,
    json: Annotated[bool, typer.Option("--json", help="Print the final status as JSON.")] = False,
) -> None:
    """Run a job until it ends; Ctrl-C or SIGTERM finish the running epoch first."""
    accepted_from(accept or ())
    supervisor = ToSupervisor.from_environment()
    options = RunOptions(
        target=target,
        accept=tuple(accept or ()),
        master=master,
        conf=tuple(conf or ()),
        packages=packages,
        shows_spark_log=spark_log_shown,
        json=json,
        quiet=log_as(log, quiet=json),
        log=log,
        api=api,
        api_bind=api_bind,
        dashboard=dashboard,
        traces=traces,
        stop_timeout_s=_seconds(stop_timeout, "--stop-timeout", at_least=1),
        heartbeat_timeout_s=_seconds(heartbeat_timeout, "--heartbeat-timeout", at_least=2),
        ready_file=ready_file,
    )
    _begin(options, supervisor, strategy_from(restart) if restart is not None else None)


def _begin(options: RunOptions, supervisor: ToSupervisor | None, wanted: RestartStrategy | None) -> None:
    """As a driver, where there is a supervisor or need be none; else as one."""
    job = with_api(load_job(options.target), asked=options.api, bind=options.api_bind, dashboard=options.dashboard)
    job = replace(job, traces=True) if options.traces else job
    strategy = job.restart if wanted is None else wanted
    if supervisor is not None:
        drive(job, options, supervisor)
    elif isinstance(strategy, NoRestart):
        drive(job, options, Notifier(job.name, options.ready_file))
    else:
        supervise(job, options, strategy)


def _seconds(text: str, option: str, *, at_least: float) -> float:
    """A bare number is one of seconds here, too."""
    try:
        return in_seconds(float(text), what=option, at_least=at_least)
    except ValueError:
        return in_seconds(text, what=option, at_least=at_least)
