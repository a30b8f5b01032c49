"""What an operator needs of Python, said before it is missed: Spark says only that a worker has crashed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from pyspark.sql import DataFrame

from onceward.errors import ConfigurationError
from onceward.spark.plan import node_names

_NODE: Final = "TransformWithStateIn"
"""`...InPySpark`, and `...InPandas` before 4.1; that of Scala needs nothing."""
_MODULES: Final = {"grpc": "grpcio", "google.protobuf": "protobuf", "zstandard": "zstandard"}


def check_needs(frame: DataFrame) -> None:
    """Refuse a `transformWithState` in Python without the packages that Spark's worker imports for it. Before it is
    planned: Spark runs such a worker for the plan already. The driver's own environment is looked at; executors need
    them as well."""
    if not any(name.startswith(_NODE) for name in node_names(frame)):
        return
    missing = [package for module, package in _MODULES.items() if not _is_there(module)]
    if missing:
        raise ConfigurationError(
            f"transformWithState needs the Python packages {', '.join(missing)}, which are not installed: a worker "
            "would crash without naming them",
            hint=f"pip install {' '.join(missing)}, where the driver and where the executors run",
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
