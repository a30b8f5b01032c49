"""One target, checkpoints that can be copied, deleted and put back, and what a start on them is refused with."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from onceward.errors import OncewardError
from onceward.recovery import Accept
from onceward.testing import (
    Behaviour,
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

KINDS = pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
Kind = Callable[..., Any]


class OneTarget:
    """One target, and checkpoints that can be copied, deleted and put back."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.target = MemoryTarget()

    def job(
        self,
        *,
        ends: tuple[int, ...] = (4, 8),
        storage: MemoryStorage | None = None,
        logs: MemoryLogs | None = None,
        name: str = "job",
        directory_id: str = "here",
        sink: str | None = None,
    ) -> Harness:
        made = self.kind(self.target) if sink is None else self.kind(self.target, name=sink)
        return Harness(
            SinkUnderTest(made, lambda: self.target.rows),
            source=Source(ends=ends),
            storage=storage or MemoryStorage(),
            logs=logs or MemoryLogs(),
            name=name,
            directory_id=directory_id,
        )

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.target.rows)


def copied(harness: Harness) -> dict[str, Any]:
    """A copy of the checkpoint at rest."""
    return {"storage": deepcopy(harness.storage), "logs": deepcopy(harness.logs)}


def refused_with(harness: Harness, error: type[OncewardError], *accepted: Accept) -> OncewardError:
    ending = harness.life(behaviour=Behaviour(accepted=frozenset(accepted)))
    assert isinstance(ending, Failed), ending
    assert isinstance(ending.error, error), ending
    assert ending.error.hint
    return ending.error


def accepting(what: Accept) -> Behaviour:
    return Behaviour(accepted=frozenset({what}))
