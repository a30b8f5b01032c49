"""A real server that is killed, stopped or paused, before and while a job publishes: each row arrives once."""

from __future__ import annotations

import itertools
import random
import threading
from dataclasses import replace
from typing import Any

import pytest
from mysql_slots import appending, context, ids, in_background, once, stage
from mysql_workspace import JOB, MySQLWorkspace

from onceward.connections.mysql import MySQLError
from onceward.contracts import AlreadyCommitted, Committed, Hooks, Lost, RetryLater
from onceward.errors import PublishFailed
from onceward.testing import Behaviour, Failed, Harness, SinkUnderTest, Source

pytestmark = pytest.mark.cluster


def test_the_server_is_killed_between_pre_commit_and_publish(own: MySQLWorkspace) -> None:
    sink = appending(own)
    for epoch in range(3):
        handles = [stage(sink, context(sink, epoch, slot)) for slot in (0, 1)]
        own.server.kill()
        with pytest.raises(MySQLError):
            sink.commit(handles[0])
        own.server.start()
        assert {h["transaction"] for h in sink.pending(JOB)} == {h["transaction"] for h in handles}
        assert sink.commit(handles[0]) == Committed()
        own.server.kill()
        own.server.start()
        assert list(sink.commit_all(handles)) == [AlreadyCommitted(), Committed()]
    assert ids(own) == [10 * epoch + row for epoch in range(3) for row in range(4)]
    assert own.prepared() == []


def test_the_server_is_killed_at_random_moments(own: MySQLWorkspace, record_sweep: list[str]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sink = appending(own, timeout_s=10.0)
    done, stop = [], threading.Event()

    def deliver() -> None:
        for epoch in itertools.count():
            if stop.is_set():
                return
            deliver_epoch(sink, epoch)
            done.append(epoch)

    working = in_background(deliver)
    for _ in range(6):
        stop.wait(chance.uniform(0.05, 0.5))
        own.server.kill()
        own.server.start()
    stop.set()
    assert working.wait(60)
    assert ids(own) == once(*done)
    assert own.prepared() == []
    record_sweep.append(f"MySQL, server killed 6 times during {len(done)} epochs, seed {seed}")


def deliver_epoch(sink: Any, epoch: int) -> None:
    """As the protocol would: stage until it worked, then commit that until it is known to have worked."""
    handle = None
    for attempt in itertools.count(1):
        try:
            handle = handle or stage(sink, context(sink, epoch, attempt=attempt))
            for orphan in list(sink.pending(JOB)):
                if orphan["transaction"] != handle["transaction"]:
                    sink.abort(orphan)
            outcome = sink.commit(handle)
        except MySQLError:
            continue
        assert not isinstance(outcome, Lost), outcome
        if not isinstance(outcome, RetryLater):
            return


def test_a_server_that_is_down_for_longer_than_every_retry_keeps_the_epochs_waiting(own: MySQLWorkspace) -> None:
    sinks = [appending(own), appending(own, table="upserted", mode="upsert", keys="id")]
    tables = ("`rows`", "upserted")
    subjects = [
        SinkUnderTest(sink, lambda table=table: own.rows(table)) for sink, table in zip(sinks, tables, strict=True)
    ]
    harness = Harness(*subjects, source=Source(ends=(4, 8)))
    ending = harness.life(behaviour=Behaviour(hooks=Hooks(on_decision=lambda epoch: own.server.stop())))
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, PublishFailed)
    own.server.start()
    assert (own.rows(), own.rows("upserted")) == ([], [])
    harness.drain()
    assert harness.problems() == []
    assert own.prepared() == []


def test_a_commit_that_is_carried_out_after_its_sender_gave_up_is_found(own: MySQLWorkspace) -> None:
    sink = appending(own)
    # Chosen by one with patience: that asks the server, too.
    impatient = own.sink()
    impatient._options = replace(impatient._options, timeout_s=1.0)
    handle = stage(sink, context(sink, 0))
    own.server.pause()
    try:
        with pytest.raises(MySQLError):
            impatient.commit(handle)
    finally:
        own.server.resume()
    assert isinstance(sink.commit(handle), Committed | AlreadyCommitted)
    assert ids(own) == once(0)
