"""For people who write sinks, and for our own tests: the protocol without Spark, and everything that can go wrong.

`fakes` is the outside world in memory, `engine` stands in for Spark, `faults` break things, `harness` drives the real
*stage → decide → publish → settle → recover* over them, `audit` judges the outcome, `conformance` is the suite that
every sink must pass, and `broken` holds sinks that must not.
"""

from onceward.testing.audit import Audit, audit
from onceward.testing.engine import ConcurrentUpdate, DirectoryLogs, Engine, MemoryLogs, Source
from onceward.testing.fake_sinks import (
    FakeSlotwiseSink,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    MemoryCommitter,
    MemoryTarget,
)
from onceward.testing.fakes import ManualClock, MemoryStorage
from onceward.testing.faults import (
    Crash,
    CrashAt,
    DiesAt,
    Faults,
    Late,
    PausedAt,
    RandomFaults,
    Rates,
    TargetError,
)
from onceward.testing.harness import Behaviour, Crashed, Ending, Failed, Finished, Harness, SinkUnderTest
from onceward.testing.hosts import SecondHost
from onceward.testing.interleave import Interleaver
from onceward.testing.sweep import Sweep

__all__ = [
    "Audit",
    "Behaviour",
    "ConcurrentUpdate",
    "Crash",
    "CrashAt",
    "Crashed",
    "DiesAt",
    "DirectoryLogs",
    "Ending",
    "Engine",
    "Failed",
    "FakeSlotwiseSink",
    "FakeTransactionalSink",
    "FakeTwoPhaseSink",
    "FakeWriteAheadSink",
    "Faults",
    "Finished",
    "Harness",
    "Interleaver",
    "Late",
    "ManualClock",
    "MemoryCommitter",
    "MemoryLogs",
    "MemoryStorage",
    "MemoryTarget",
    "PausedAt",
    "RandomFaults",
    "Rates",
    "SecondHost",
    "SinkUnderTest",
    "Source",
    "Sweep",
    "TargetError",
    "audit",
]
