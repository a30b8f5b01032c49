"""Spark's parent of its Python workers, with everything imported that they import: `spark.python.daemon.module`.

Spark imports nothing before it forks them, since imports may start threads. Those of ours start two, of OpenBLAS and
of jemalloc, and both libraries see to it themselves that a fork does them no harm. A driver with two workers takes a
tenth less processor time so, and the tests start a hundred of them.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import onceward.sinks
import onceward.spark.staging  # noqa: F401

if __name__ == "__main__":
    manager()
