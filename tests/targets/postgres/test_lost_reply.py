"""The connection is cut around every kind of statement, before or after the server carried it out (scenario 5).

A proxy stands between the sink and the server, so both see what they would see when a switch dies. Histories are drawn
from seeds; `ONCEWARD_SEED=123` begins with that one.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from onceward.connections.postgres import Session
from onceward.contracts import AlreadyCommitted, Handle, Outcome
from onceward.sinks.postgres.two_phase import PostgresTwoPhaseSink
from onceward.sinks.postgres.write_ahead import PostgresWriteAheadSink
from onceward.testing import Behaviour, Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA
from onceward.testing.faults import shown
from onceward.testing.servers import Proxy

from .conftest import Place
from .jobs import ServerErrorsAsFaults

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

FIRST = int(os.environ.get("ONCEWARD_SEED", "0"))
NOTHING = b"\xff nobody sends this"
TWO_PHASE = (
    b"COMMIT PREPARED",
    b"PREPARE TRANSACTION",
    b"COPY",
    b"INSERT INTO onceward_receipts",
    b"ROLLBACK PREPARED",
)
WRITE_AHEAD = (b"COMMIT\0", b"COPY", b"INSERT INTO onceward_receipts", b"pg_advisory_xact_lock")
UPSERT = (*WRITE_AHEAD, b"ON CONFLICT", b"SAVEPOINT", b"TEMPORARY")
# The driver prepares a statement, asks for its description, and runs it: the third answer tells of the deed. Those that
# follow are of the next statements on the same connection.
ANSWERS = (0, 1, 2, 2, 2, 3, 4, 5, 8)
# Way, its options, what is cut, and how many histories.
VARIANTS: dict[str, tuple[dict[str, Any], tuple[bytes, ...], int]] = {
    "two-phase": ({}, TWO_PHASE, 60),
    "write-ahead": ({"two_phase": False}, WRITE_AHEAD, 30),
    "upsert": ({"mode": "upsert", "keys": ["id"]}, UPSERT, 20),
}


@pytest.fixture
def proxied(place: Place) -> Iterator[tuple[Place, Proxy]]:
    with Proxy(place.server.port) as proxy:
        yield replace(place, port=proxy.port), proxy


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What retries and recoveries met: only a statement that was carried out before the cut leaves these traces."""
    counts: Counter[str] = Counter()
    commit, abort = PostgresTwoPhaseSink._commit, PostgresTwoPhaseSink.abort
    waiting = PostgresWriteAheadSink._without_receipt

    def watched_commit(self: PostgresTwoPhaseSink, session: Session, handle: Handle) -> Outcome:
        outcome = commit(self, session, handle)
        counts["committed before"] += isinstance(outcome, AlreadyCommitted)
        return outcome

    def watched_abort(self: PostgresTwoPhaseSink, handle: Handle) -> None:
        counts["prepared before"] += 1
        abort(self, handle)

    def watched_waiting(self: PostgresWriteAheadSink, *args: Any) -> Any:
        result = waiting(self, *args)
        counts["committed before"] += not result
        return result

    monkeypatch.setattr(PostgresTwoPhaseSink, "_commit", watched_commit)
    monkeypatch.setattr(PostgresTwoPhaseSink, "abort", watched_abort)
    monkeypatch.setattr(PostgresWriteAheadSink, "_without_receipt", watched_waiting)
    return counts


class History:
    """One seed: a job whose connections are cut, some lives of it, and the audit."""

    def __init__(
        self, seed: int, place: Place, proxy: Proxy, options: dict[str, Any], patterns: tuple[bytes, ...]
    ) -> None:
        self.seed, self.rng, self.place, self.proxy, self.patterns = seed, Random(seed), place, proxy, patterns
        self.proxy.cut_after(NOTHING)
        sink = place.sink(**options).choose()
        sink.check(SCHEMA, output_mode="append")
        place.empty()
        source = Source(ends=self.rng.choice(((2, 3), (4,), (2, 2, 4))), keys=2)
        self.harness = Harness(SinkUnderTest(sink, place.rows, ordered=False), source=source, rows_in_a_batch=1)

    def play(self) -> Counter[str]:
        rng, counts = self.rng, Counter[str]()
        for _ in range(rng.randint(1, 2)):
            cuts = self.proxy.cuts
            pattern, answers, times = rng.choice(self.patterns), rng.choice(ANSWERS), rng.randint(1, 2)
            self.proxy.cut_after(pattern, answers=answers, times=times)
            self.harness.trace.append(f"cut after {pattern!r}, {answers} answers, {times} times")
            lazy = rng.random() < 0.3
            ending = self.harness.life(ServerErrorsAsFaults(), Behaviour(publishes=lambda epoch, lazy=lazy: not lazy))
            assert isinstance(ending, Finished | Failed), self.story()
            counts["cuts"] += self.proxy.cuts - cuts
            counts["finished" if isinstance(ending, Finished) else type(ending.error).__name__] += 1
        self.proxy.cut_after(NOTHING)
        self.harness.drain()
        assert self.harness.problems() == [], self.story()
        assert self.place.prepared() == [], self.story()
        return counts

    def story(self) -> str:
        return f"ONCEWARD_SEED={self.seed}\n{shown(self.harness.trace)}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_lost_answer_neither_loses_nor_duplicates(
    variant: str,
    proxied: tuple[Place, Proxy],
    found: Counter[str],
    caplog: pytest.LogCaptureFixture,
    record_sweep: list[str],
) -> None:
    caplog.set_level(logging.ERROR, logger="onceward")
    options, patterns, count = VARIANTS[variant]
    total: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + count):
        total += History(seed, *proxied, options, patterns).play()
    record_sweep.append(
        f"PostgreSQL {variant}, lost answers: {count} histories from seed {FIRST}, "
        + ", ".join(f"{name} {number}" for name, number in {**total, **found}.items())
    )
    assert total["cuts"] >= count, "the cuts must happen, or the test proves nothing"
    assert found["committed before"] >= count / 10, f"too few answers were lost after the deed: {found}"
    if variant == "two-phase":
        assert found["prepared before"] >= count / 20, found


@pytest.mark.parametrize(("answers", "carried_out"), [(0, False), (1, False), (2, True)])
@pytest.mark.parametrize("variant", ["two-phase", "write-ahead"])
def test_whether_the_commit_was_carried_out_is_found_in_the_target(
    variant: str, answers: int, carried_out: bool, proxied: tuple[Place, Proxy], found: Counter[str]
) -> None:
    place, proxy = proxied
    options, patterns, _ = VARIANTS[variant]
    history = History(0, place, proxy, options, patterns)
    proxy.cut_after(patterns[0], answers=answers)
    assert isinstance(history.harness.life(ServerErrorsAsFaults()), Finished), history.story()
    assert proxy.cuts == 1
    assert found["committed before"] == (1 if carried_out else 0)
    assert history.harness.problems() == []
