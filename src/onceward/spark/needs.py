"""What an operator needs of Python, said before it is missed: Spark says only that a worker has crashed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from onceward.errors import ConfigurationError
from onceward.operators import Topology

_KIND: Final = "transformWithStateInPySpark"
_MODULES: Final = {"grpc": "grpcio", "google.protobuf": "protobuf", "zstandard": "zstandard"}


def check_needs(topology: Topology | None) -> None:
    """Refuse a `transformWithState` in Python without the packages that Spark's worker imports for it. The driver's own
    environment is looked at; executors need them as well."""
    operators = topology.operators if topology is not None else ()
    if not any(one.kind.startswith(_KIND) for one in operators):
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
