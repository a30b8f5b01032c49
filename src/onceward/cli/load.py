"""Finding a job in a user's file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from pyspark import cloudpickle

from onceward.api import ApiConfig
from onceward.errors import ConfigurationError, OncewardError
from onceward.job import Job
from onceward.spark.run_lock import starting_nothing


def load_job(target: str) -> Job:
    """The job that `FILE` or `FILE:NAME` names."""
    path, wanted = _parts(target)
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}", hint="give a Python file that defines a Job: FILE[:NAME]")
    jobs = {name: value for name, value in _execute(path).items() if isinstance(value, Job)}
    if wanted:
        if wanted not in jobs:
            raise ConfigurationError(f"{path} defines no job named {wanted}", hint=_found(jobs))
        return jobs[wanted]
    if len(jobs) != 1:
        raise ConfigurationError(f"{path} defines {len(jobs)} jobs, not one", hint=_found(jobs))
    return next(iter(jobs.values()))


def with_api(job: Job, *, asked: bool, bind: str | None, dashboard: bool = False) -> Job:
    """The job with an API, or a dashboard, where the command asks for one; at another address than its own, if one is
    given."""
    if dashboard:
        job = replace(job, dashboard=True)
    if bind is not None:
        given = ApiConfig.parse(bind)
        return replace(job, api=given if job.api is None else replace(job.api, host=given.host, port=given.port))
    return replace(job, api=ApiConfig()) if asked and job.api is None else job


def file_of(target: str) -> Path:
    """The file in `FILE` or `FILE:NAME`."""
    return _parts(target)[0]


def _parts(target: str) -> tuple[Path, str]:
    file, _, wanted = target.partition(":") if not target.endswith(".py") else (target, "", "")
    return Path(file), wanted


def _execute(path: Path) -> dict[str, object]:
    name = f"onceward_job_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} is not a Python file", hint="its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    # Executors cannot import the user's file by this name: what it defines travels by value.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        with starting_nothing(path):
            spec.loader.exec_module(module)
    except OncewardError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"{path} cannot be loaded: {_last_line(error, path)}{type(error).__name__}: {error}",
            hint="fix the file; `python FILE` shows where it fails. Modules that it needs must be installed in this "
            "environment, or lie beside it",
        ) from error
    return vars(module)


def _last_line(error: Exception, path: Path) -> str:
    """Where in the user's own file it happened, if that is known."""
    file = path.absolute()
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return f"line {lines[-1]}: " if lines else ""


def _found(jobs: dict[str, Job]) -> str:
    return f"name one of: {', '.join(jobs)}" if jobs else "assign a Job to a variable at the top level of the file"
