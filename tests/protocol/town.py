"""Two targets, one job over both, and a checkpoint that can be harmed: where every refusal is walked to its exit."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from onceward.admin import Proposal, record
from onceward.epoch import RunContext
from onceward.errors import OncewardError
from onceward.identity import SinkName
from onceward.recovery import Accept, look_at
from onceward.testing import (
    Behaviour,
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Harness,
    MemoryLogs,
    MemoryStorage,
    MemoryTarget,
    SinkUnderTest,
    Source,
)

AT = datetime(2026, 11, 16, tzinfo=UTC)
A, B = SinkName("a"), SinkName("b")
DECIDED = "log commit 1"
"""Epoch 0 is settled; epoch 1 is staged, and the driver dies right after it was decided."""


class Town:
    """Two targets, one job over both, and a checkpoint that can be harmed. Epoch 0 has ids 0 to 3, 1 has 4 to 7, ..."""

    def __init__(self, first: Callable[..., Any] = FakeTwoPhaseSink, second: Callable[..., Any] | None = None) -> None:
        self.targets = {A: MemoryTarget(), B: MemoryTarget()}
        self.kinds = {A: first, B: second or FakeTransactionalSink}
        self.storage, self.logs = MemoryStorage(), MemoryLogs()
        self.harness = self.job(A, B)

    def job(self, *sinks: SinkName, ends: tuple[int, ...] = (4, 8, 12), **more: Any) -> Harness:
        subjects = [
            SinkUnderTest(self.kinds[name](self.targets[name], name=name), self._reader(name))
            for name in sinks or (A, B)
        ]
        return Harness(
            *subjects,
            source=Source(ends=ends),
            **{"storage": self.storage, "logs": self.logs, "directory_id": "here", **more},
        )

    def _reader(self, name: SinkName) -> Callable[[], Any]:
        return lambda: self.targets[name].rows

    def ids(self, sink: SinkName = A) -> list[int]:
        return sorted(row["id"] for row in self.targets[sink].rows)

    def context(self, harness: Harness | None = None, **more: Any) -> RunContext:
        job = harness or self.harness
        parts = {"sinks": job.sinks, "storage": job.storage, "decisions": job.logs, "directory_id": job.directory_id}
        return look_at(**parts, clock=job.clock, **more)[0]

    def decided_and_unpublished(self) -> None:
        self.harness.life(until=0)
        self.harness.life(DiesAt(DECIDED, after=True))

    def lose_transactions(self, sink: SinkName = A) -> None:
        """An administrator rolls them back, or a fail-over forgets them."""
        self.targets[sink].transactions.clear()

    def file(self, start: str) -> str:
        return next(path for path in sorted(self.storage.files) if path.startswith(start))

    def flip(self, start: str) -> str:
        path = self.file(start)
        data = bytearray(self.storage.files[path])
        data[-2] ^= 1
        self.storage.files[path] = bytes(data)
        return path

    def drained(self, harness: Harness | None = None) -> None:
        """From here on it runs, also at the start after that, and leaves nothing behind."""
        job = harness or self.harness
        job.drain()
        before = {name: self.ids(name) for name in self.targets}
        job.drain()
        assert {name: self.ids(name) for name in self.targets} == before
        assert job.leftovers() == []


def refused(harness: Harness, error: type[OncewardError], *words: str, accepted: tuple[Accept, ...] = ()) -> Any:
    """Twice, because a refusal changes nothing."""
    for _ in range(2):
        ending = harness.life(behaviour=Behaviour(accepted=frozenset(accepted)))
        assert isinstance(ending, Failed), ending
        assert type(ending.error) is error, ending
        assert ending.error.hint
    for word in words:
        assert word in str(ending.error), f"{word!r} is not in: {ending.error}"
    return ending.error


def say(harness: Harness, proposal: Proposal, *words: str) -> None:
    """Sign it. What it says must be in its lines."""
    text = "\n".join(proposal.lines)
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"
    record(harness.storage, proposal, by="ann@host", at=AT, because="I looked")


def one_of_two_lost() -> Town:
    """Scenario 81: B is published, the transactions of A are lost."""
    town = Town(FakeTwoPhaseSink, FakeTwoPhaseSink)
    town.decided_and_unpublished()
    context = town.context()
    manifest = context.register.manifest(1, 0)
    assert manifest is not None
    for slot in manifest.sinks[B].slots:
        context.sinks[1].commit(slot.handle)
    town.lose_transactions(A)
    return town
