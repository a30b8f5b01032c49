"""Names of the package that need PySpark, the sinks or the supervisor's parts, imported when they are first asked for:
the first takes half a second, the last a twentieth, and a command that only reads files needs none of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "ExponentialDelay": "onceward.restart",
    "FailureRate": "onceward.restart",
    "FixedDelay": "onceward.restart",
    "Job": "onceward.job",
    "NoRestart": "onceward.restart",
    "Run": "onceward.spark.run",
    "foreach_batch": "onceward.job",
    "slots_to_send": "onceward.sinks.receipts",
}


def __getattr__(name: str) -> Any:
    """For the package, which has it as its own."""
    if name not in _MODULES:
        raise AttributeError(f"module 'onceward' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
