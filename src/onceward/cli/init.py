"""`onceward init`: a job file to begin with, which runs as it is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from onceward.cli.show import err, out
from onceward.errors import ConfigurationError

_JOB = '''"""Page views per app: JSON lines in the folder views, counted, into {into}.

    onceward doctor {file}    looks at it before it runs
    onceward run {file}       runs it; kill it and run it again, as often as you like
"""
{imports}
from onceward import Job
from onceward.sinks import {sink}


def views_per_app(spark):
    views = spark.readStream.schema("app string, user string").json("views")
    return views.groupBy("app").count()


job = Job(
    name="{job}",
    checkpoint="checkpoints/{job}",
    pipeline=views_per_app,
    sinks=[{made}],
    output_mode="update",
    # What is there is worked off, and the job ends. For one that goes on: trigger="10 seconds".
    trigger="available-now",
)

if __name__ == "__main__":
    from pyspark.sql import SparkSession

    job.run(SparkSession.builder.getOrCreate())
'''
_SINKS = {
    "sqlite": ("SQLiteSink", "the table pv of pv.db", 'SQLiteSink("pv.db", table="pv", mode="upsert", keys=["app"])'),
    "files": ("FileSink", "Parquet files, one row for each change", 'FileSink("out/pv")'),
    "postgres": (
        "PostgresSink",
        "the table pv of PostgreSQL",
        'PostgresSink(os.environ["POSTGRES_URL"], table="pv", mode="upsert", keys=["app"])',
    ),
    "mysql": (
        "MySQLSink",
        "the table pv of MySQL",
        'MySQLSink(os.environ["MYSQL_URL"], table="pv", mode="upsert", keys=["app"])',
    ),
    "redis": (
        "RedisSink",
        "the keys pv:APP of Redis",
        'RedisSink(os.environ["REDIS_URL"], key="pv:{app}", value="count")',
    ),
    "kafka": (
        "KafkaSink",
        "the topic pv of Kafka, by app",
        'KafkaSink(os.environ["KAFKA"], topic="pv", key="app", create_partitions=2)',
    ),
}
_URLS = {
    "postgres": "POSTGRES_URL=postgresql://USER:PASSWORD@localhost/DATABASE",
    "mysql": "MYSQL_URL=mysql://USER:PASSWORD@localhost/DATABASE",
    "redis": "REDIS_URL=redis://localhost:6379/0",
    "kafka": "KAFKA=localhost:9092",
}
_VIEWS = '{"app": "maps", "user": "ann"}\n{"app": "mail", "user": "ann"}\n{"app": "maps", "user": "bob"}\n'


def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("job.py"),
    sink: Annotated[str, typer.Option(help=f"Where the rows go: {', '.join(_SINKS)}.")] = "sqlite",
) -> None:
    """Write a job file that runs, and a few lines for it to read."""
    if sink not in _SINKS:
        raise ConfigurationError(f"there is no sink {sink!r} to begin with", hint=f"use one of: {', '.join(_SINKS)}")
    if file.suffix != ".py":
        raise ConfigurationError(f"{file} is no name of a Python file", hint=f"say onceward init {file}.py")
    name, into, made = _SINKS[sink]
    imports = "\nimport os\n" if sink in _URLS else ""
    job = re.sub(r"[^A-Za-z0-9._-]", "-", file.stem)
    text = _JOB.format(file=file.name, job=job, into=into, imports=imports, sink=name, made=made)
    views = file.parent / "views"
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
        if not views.exists():
            views.mkdir()
            (views / "first.json").write_text(_VIEWS)
            err.print(f"made {escape(str(views / 'first.json'))} with three page views")
    except FileExistsError:
        raise ConfigurationError(f"{file} is there already", hint="give another name: onceward init FILE") from None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}", hint="give another name") from None
    out.print(f"[green]made[/] {escape(str(file))}")
    if sink in _URLS:
        out.print(f"  it reads the server's address from the environment: export {_URLS[sink]}")
    where = f"cd {shlex.quote(str(file.parent))} && " if file.parent != Path() else ""
    out.print(escape(f"  run it: {where}onceward run {shlex.quote(file.name)}"))
