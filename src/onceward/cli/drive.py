"""The driver of `onceward run`: Spark, the job, and what others are to see of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import typer
from rich.markup import escape

from onceward import traces
from onceward.api.server import require_extra
from onceward.cli.load import file_of
from onceward.cli.progress import Progress
from onceward.cli.session import spark_log, spark_session
from onceward.cli.show import err, error_document, show_json, show_published
from onceward.errors import JvmEnded, OncewardError
from onceward.job import checkpoint_reached
from onceward.restart import ToSupervisor, first_line, kill_session
from onceward.spark.cause import MAY_BE_RESTARTED, exit_code_of
from onceward.spark.heartbeat import heartbeat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from onceward.cli.run import RunOptions
    from onceward.job import Job
    from onceward.spark.run import Run, RunStatus

_LOOK_S: Final = 0.5
_STOP_GRACE_S: Final = 15.0
_DYING_S: Final = 2.0
_OUT_OF_MEMORY: Final = 3


class Watcher(Protocol):
    """Who is told how the job fares: the supervisor, or, without one, systemd and the ready file."""

    def ready(self) -> None:
        """It is recovered and its query runs."""
        ...

    def alive(self) -> None:
        """Its JVM has answered."""
        ...

    def stopping(self) -> None:
        """It has been asked to end."""
        ...

    def ended(self) -> None:
        """It has."""
        ...

    def failed(self, document: Mapping[str, Any]) -> None:
        """It ends with an error."""
        ...


def drive(job: Job, options: RunOptions, watcher: Watcher) -> None:
    """Run it in this process."""
    supervised = isinstance(watcher, ToSupervisor)
    told_to_stop = threading.Event()
    if isinstance(watcher, ToSupervisor):
        watcher.when_gone(lambda: _end_without_supervisor(told_to_stop, options))
    with (
        _told(watcher, exits=supervised and options.json),
        spark_log(job.name, shown=options.shows_spark_log, keeps_former=supervised) as log_file,
    ):
        if job.api is not None:
            require_extra()
        if job.traces:
            traces.require_extra()
        if not options.quiet:
            err.print(f"starting Spark for {escape(job.name)} ...")
        _end_at_once_on_sigterm(job)
        spark = spark_session(
            job.name,
            job_file=file_of(options.target),
            master=options.master,
            settings=options.conf,
            packages=options.packages,
            log_file=log_file,
        )
        with _jvm_named(spark), heartbeat(spark, watcher.alive, timeout_s=options.heartbeat_timeout_s):
            final = _run(job, spark, options, watcher, told_to_stop)
    if options.json:
        show_json(final)
    elif not options.quiet:
        err.print(f"[green]done[/] {escape(job.name)}: {show_published(final.settled)}")


def _run(
    job: Job, spark: SparkSession, options: RunOptions, watcher: Watcher, told_to_stop: threading.Event
) -> RunStatus:
    """Until it ends, or somebody ends it."""
    with _Limit(options.stop_timeout_s + _STOP_GRACE_S, spark) as limit:

        def note(_number: int, _frame: object) -> None:
            """Not raised: an exception in the middle of a call to Spark would be logged with its traceback."""
            limit.begin()
            told_to_stop.set()

        # Recovery is not cut short either: it publishes what is decided.
        signal.signal(signal.SIGTERM, note)
        started = job.start(spark, accept=options.accept)
        signal.signal(signal.SIGINT, note)
        started.on_stop_request(told_to_stop.set)
        _stay(started, job, options, watcher, told_to_stop, limit)
    return started.status()


def _stay(
    started: Run, job: Job, options: RunOptions, watcher: Watcher, told_to_stop: threading.Event, limit: _Limit
) -> None:
    """With the started job."""
    quiet = options.quiet
    watcher.ready()
    if not quiet:
        sinks = escape(", ".join(str(sink.name) for sink in job.sinks))
        err.print(f"[green]running[/] {escape(job.name)} into {sinks}: Ctrl-C finishes the running epoch and stops")
    with Progress(quiet=quiet) as progress:
        while not started.await_termination(timeout_s=_LOOK_S):
            progress.show(started)
            if told_to_stop.is_set():
                if not quiet:
                    err.print("stopping after the running epoch ...")
                watcher.stopping()
                limit.begin()
                started.stop(options.stop_timeout_s)
                break


@contextmanager
def _told(watcher: Watcher, *, exits: bool) -> Iterator[None]:
    """Let an error be known before it ends the command. Where `exits`, whoever knows it shows it."""
    try:
        yield
    except Exception as error:
        code = exit_code_of(error)
        document = error_document(error, exit_code=code)
        watcher.failed({**document, "first_line": first_line(str(document["message"]))})
        if exits:
            raise typer.Exit(code) from error
        raise
    finally:
        watcher.ended()


@contextmanager
def _jvm_named(spark: SparkSession) -> Iterator[None]:
    """Where the JVM has died, Python fails in one of many ways, none of which says so."""
    java = getattr(spark.sparkContext._gateway, "proc", None)
    try:
        yield
    except OncewardError:
        raise
    except Exception as error:
        code = _code_of(java)
        if code is None:
            raise
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        why = "; that is how it ends when it has run out of memory" if code == _OUT_OF_MEMORY else ""
        raise JvmEnded(
            f"Spark's JVM {how}{why}",
            hint="give it more memory (--conf spark.driver.memory=4g) if it ran out of it; Spark's own log says more",
        ) from error


def _code_of(java: subprocess.Popen[bytes] | None) -> int | None:
    """With which code it has ended, None where it has not, or where it is none of ours."""
    if java is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        return java.wait(_DYING_S)
    return None


class _Limit:
    """For a stop, from the moment it is asked for: a call to a JVM that does not answer never comes back, and a start
    may wait long for a target. Then end, and the JVM with us.

    A thread looks at the time from the start on. A signal handler must not start one: it may have interrupted the main
    thread where that holds the lock which starting a thread takes.
    """

    def __init__(self, seconds: float, spark: SparkSession) -> None:
        self._seconds = seconds
        self._java = getattr(spark.sparkContext._gateway, "proc", None)
        self._ends_at: float | None = None
        self._over = threading.Event()

    def begin(self) -> None:
        """The time counts from the first call on; by a signal handler, too."""
        if self._ends_at is None:
            self._ends_at = time.monotonic() + self._seconds

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            if self._ends_at is not None and time.monotonic() >= self._ends_at:
                self._end()

    def _end(self) -> None:
        err.print(f"the job has not stopped within {self._seconds:.0f} s; ended. The next start goes on where it was")
        if self._java is not None:
            self._java.kill()
        os._exit(MAY_BE_RESTARTED)

    def __enter__(self) -> _Limit:
        threading.Thread(target=self._watch, name="onceward-stop-limit", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()


def _end_at_once_on_sigterm(job: Job) -> None:
    """While Spark starts, nothing runs that would have to be finished. What is decided may wait to be published."""

    def end(_number: int, _frame: object) -> None:
        reached = checkpoint_reached(job)
        sys.exit(0 if reached.settled >= reached.decided else MAY_BE_RESTARTED)

    signal.signal(signal.SIGTERM, end)


def _end_without_supervisor(told_to_stop: threading.Event, options: RunOptions) -> None:
    """Nobody would notice any more if we hung: stop between two epochs, and if that takes too long, at once.

    Our session is our own, with the JVM and the workers in it.
    """
    told_to_stop.set()
    threading.Event().wait(options.stop_timeout_s + _STOP_GRACE_S)
    kill_session(os.getpid())
