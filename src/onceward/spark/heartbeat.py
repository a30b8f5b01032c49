"""A driver's heartbeat, through its JVM: each beat is an answer that Java has just given.

A thread of Python alone would go on beating while the JVM is stopped, or does nothing but collect garbage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_OFTEN_ENOUGH_S = 5.0


@contextmanager
def heartbeat(spark: SparkSession, beat: Callable[[], None], *, timeout_s: float) -> Iterator[None]:
    """While the block runs: ask and beat, several times within what would be taken for a hang."""
    ended = threading.Event()
    every_s = min(_OFTEN_ENOUGH_S, timeout_s / 4)
    jvm = spark._jvm
    assert jvm is not None, "a session without a JVM (Spark Connect) does not come so far"
    ask = jvm.java.lang.System.nanoTime

    def go_on() -> None:
        while not ended.is_set():
            try:
                ask()
            except (Py4JError, OSError):
                # The JVM is gone. Whoever works with it learns that too; we only fall silent.
                return
            if not ended.is_set():
                beat()
            ended.wait(every_s)

    threading.Thread(target=go_on, name="onceward-heartbeat", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
