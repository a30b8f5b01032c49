"""The Spark session of a command: its settings, its jars, and where the JVM's own words go."""

from __future__ import annotations

import ast
import logging
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from onceward.cli.show import err
from onceward.errors import ConfigurationError, OncewardError
from onceward.spark.java import missing_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODULES = "spark.executorEnv.PYTHONPATH"
_PACKAGES = "spark.jars.packages"
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_STDERR = 2


def spark_session(
    name: str,
    *,
    job_file: Path | None = None,
    master: str | None = None,
    settings: Sequence[str] = (),
    packages: str | None = None,
    log_file: int | None = None,
) -> SparkSession:
    """With these settings, given as NAME=VALUE. Modules beside the job's file are found by the executors, too, and a
    job that reads from Kafka gets Spark's connector."""
    given = dict(_setting(one) for one in settings)
    if packages is not None:
        given[_PACKAGES] = packages
    if master is not None:
        given["spark.master"] = master
    if job_file is not None:
        given.setdefault(_MODULES, str(job_file.resolve().parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import __version__ as spark_version
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if job_file is not None and reads_kafka(job_file) and not _has_connector(given):
        given[_PACKAGES] = f"{_CONNECTOR}:{spark_version}"
    _say_errors_once()
    try:
        with _stderr_into(log_file):
            _launch_java(name, given)
            return SparkSession.builder.appName(name).config(map={**given}).getOrCreate()
    except PySparkRuntimeError as error:
        raise missing_java(os.environ) or error from None


def _say_errors_once() -> None:
    """PySpark prints each error about a query as JSON on standard error, and raises it. We show it, in a line."""
    from pyspark.logger import PySparkLogger

    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)


def _launch_java(name: str, settings: Mapping[str, str]) -> None:
    """The JVM in a process group of its own, unless there is one already. A signal to the group of the command, as many
    a shell, `timeout` and job scheduler send it, is for us: the running epoch needs Spark to its end.

    It stays in our session, by which a supervisor ends all of a driver, and ends by itself when we are gone.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf().setAppName(name).setAll([*settings.items()])
        others = _group_leaders()
        try:
            gateway = launch_gateway(conf, {"process_group": 0})  # type: ignore[no-untyped-call]
        except BaseException:
            # Told to stop while Java starts, we would leave a JVM behind that waits for nobody, for ever.
            for group in _group_leaders() - others:
                with suppress(OSError):
                    os.killpg(group, signal.SIGKILL)
            raise
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _group_leaders() -> set[int]:
    """Children of ours that lead a process group, as a script of Spark's does, which then starts Java."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                # After the name, which is in parentheses and may hold anything: state, parent, group.
                _, parent, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(parent) == os.getpid() and group == entry.name:
                    found.add(int(group))
    return found


@contextmanager
def spark_log(name: str, *, shown: bool = False, keeps_former: bool = False) -> Iterator[int | None]:
    """A file for what the JVM prints, unless that is to be shown: one for each job, begun anew at each start. That of
    the driver before, which has failed, may be kept beside it. It is named where something fails that is none of ours
    to explain."""
    if shown:
        yield None
        return
    path = _log_path(name)
    if keeps_former:
        path.replace(path.with_suffix(".former.log"))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, mode=0o600)
    try:
        yield handle
    except OncewardError:
        raise
    except Exception:
        err.print(f"[dim]Spark's own log is in {escape(str(path))}[/]")
        raise
    finally:
        os.close(handle)


def _log_path(name: str) -> Path:
    """Where only this user writes, or a place of its own where there is no such folder."""
    file = f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:100]}.spark.log"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onceward"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        (cache / file).touch(mode=0o600)
    except (OSError, RuntimeError):
        return Path(tempfile.mkdtemp(prefix="onceward-")) / file
    return cache / file


@contextmanager
def _stderr_into(file: int | None) -> Iterator[None]:
    """Java takes over what is standard error when it is started, and keeps it."""
    if file is None:
        yield
        return
    kept = os.dup(_STDERR)
    os.dup2(file, _STDERR)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)


def reads_kafka(job_file: Path) -> bool:
    """Whether the file names `KafkaSource`, or `.format("kafka")` for a reader. What it imports is not looked at."""
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.walk(ast.parse(job_file.read_bytes())):
            match node:
                case ast.Name(id="KafkaSource") | ast.Attribute(attr="KafkaSource"):
                    return True
                case ast.Call(func=ast.Attribute(value=whose, attr="format"), args=[ast.Constant(value="kafka")]):
                    if "writeStream" not in ast.dump(whose) and not isinstance(whose, ast.Constant):
                        return True
    return False


def _has_connector(given: Mapping[str, str]) -> bool:
    """Whether someone has seen to it: it lies among Spark's own jars, or jars or packages are named anywhere. Ours
    would take the place of those."""
    from pyspark.find_spark_home import _find_spark_home

    home = Path(_find_spark_home())
    if any((home / "jars").glob("spark-sql-kafka*.jar")):
        return True
    settings, arguments = {*given}, os.environ.get("PYSPARK_SUBMIT_ARGS", "").split()
    settings |= {argument.partition("=")[0] for argument in arguments}
    with suppress(OSError):
        defaults = Path(os.environ.get("SPARK_CONF_DIR", home / "conf")) / "spark-defaults.conf"
        settings |= {re.split(r"[\s=]", line.strip())[0] for line in defaults.read_text().splitlines()}
    return bool(settings & {"spark.jars", _PACKAGES, "spark.driver.extraClassPath", "--packages", "--jars"})


def _setting(text: str) -> tuple[str, str]:
    name, is_set, value = text.partition("=")
    if not name.startswith("spark.") or not is_set:
        raise ConfigurationError(
            f"--conf {text} is not a setting of Spark", hint="give spark.NAME=VALUE, as to spark-submit"
        )
    return name, value
