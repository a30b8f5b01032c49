"""The suite that every sink must pass: inherit it in a test, say how to make the sink and how to read its target.

::

    class TestMySink(TwoPhaseConformance):
        def make_sink(self, name="mine"):
            return MySink(self.url, table="t", name=name)

        def read_rows(self):
            return [...]  # dictionaries with the columns of `onceward.testing.engine.SCHEMA`

Rows are `id`, `key`, `epoch`, `slot`, `version`, `attempt`. Each test gets an empty target: `make_sink` may be called
several times in one test, with different names, and must then give sinks of that one target.
"""

from onceward.testing.conformance.assertions import SUITE
from onceward.testing.conformance.base import SinkConformance
from onceward.testing.conformance.two_phase import TwoPhaseConformance
from onceward.testing.conformance.write_ahead import TransactionalConformance, WriteAheadConformance

__all__ = ["SUITE", "SinkConformance", "TransactionalConformance", "TwoPhaseConformance", "WriteAheadConformance"]
