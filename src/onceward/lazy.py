"""Names of the package that need PySpark, imported when they are first asked for: that takes half a second."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {"Job": "onceward.job", "Run": "onceward.spark.run", "foreach_batch": "onceward.job"}


def __getattr__(name: str) -> Any:
    """For the package, which has it as its own."""
    if name not in _MODULES:
        raise AttributeError(f"module 'onceward' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
