"""Two drivers whose transactional ids differ, because `id_prefix` was changed while the old one lived: no row twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from topics import JOB, KafkaWorkspace, ids, numbers, send, slot_of, write

from onceward.identity import Generation, JobIdentity
from onceward.sinks import KafkaSink
from onceward.sinks.kafka import client, session
from onceward.sinks.kafka.cluster import Cluster
from onceward.sinks.kafka.encode import Records
from onceward.sinks.kafka.errors import KafkaFailed
from onceward.sinks.kafka.producer import Producer

SEED = 20261116


def test_a_driver_paused_in_mid_publish_is_fenced_by_one_with_another_prefix(workspace: KafkaWorkspace) -> None:
    """Scenario 30, with `id_prefix` changed in between: it stands still with rows at the broker, and wakes up."""
    paused, taker = workspace.sink(id_prefix="old"), workspace.sink(id_prefix="new")

    def rows() -> Iterator[pa.RecordBatch]:
        yield numbers(1)
        assert write(taker, numbers(1, 2))
        yield numbers(2)

    with pytest.raises(KafkaFailed):
        send(paused, slot_of(paused, numbers(1), numbers(2), read=rows))
    assert ids(workspace.rows()) == [1, 2]
    assert send(paused, slot_of(paused, numbers(1), numbers(2))), "and now it finds the receipt"
    assert ids(workspace.rows()) == [1, 2]


def test_a_driver_that_trusts_what_it_read_before_is_fenced_too(workspace: KafkaWorkspace) -> None:
    """Its session is open and idle while another one, with another prefix, publishes what it is about to."""
    old, new = workspace.sink(id_prefix="old"), workspace.sink(id_prefix="new")
    assert write(old, numbers(1), epoch=1)
    assert write(new, numbers(2), epoch=2)
    with suppress(KafkaFailed):
        write(old, numbers(2), epoch=2)
    assert write(old, numbers(2), epoch=2)
    assert ids(workspace.rows()) == [1, 2]
    with suppress(KafkaFailed):
        write(new, numbers(3), epoch=3)
    assert write(new, numbers(3), epoch=3)
    assert ids(workspace.rows()) == [1, 2, 3]


def test_an_id_that_was_taken_over_is_not_asked_for_again(
    workspace: KafkaWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the new driver needs permission on the old id for one start only."""
    assert write(workspace.sink(id_prefix="old"), numbers(1), epoch=1)
    assert write(workspace.sink(id_prefix="new"), numbers(2), epoch=2)
    taken: list[str] = []
    monkeypatch.setattr(session, "claim_from", lambda other, *_: taken.append(other))
    assert write(workspace.sink(id_prefix="new"), numbers(3), epoch=3)
    assert taken == []
    assert write(workspace.sink(id_prefix="third"), numbers(4), epoch=4)
    assert [one.split("-")[0] for one in set(taken)] == ["new"]


class Stage:
    """Stops one driver at its nth step that the brokers notice, and lets another one act there."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._left, self._act, self._who = -1, lambda: None, 0
        stage = self

        class Stepping(Producer):
            def init_transactions(self, *args: Any) -> None:
                stage.step()
                super().init_transactions(*args)
                stage.step()

            def send(self, topic: str, records: Records) -> None:
                stage.step()
                super().send(topic, records)

            def commit_transaction(self, *args: Any) -> None:
                stage.step()
                super().commit_transaction(*args)
                stage.step()

        for name, kind in client.PRODUCERS.items():
            patch.setitem(client.PRODUCERS, name, type(f"Stepping{kind.__name__}", (Stepping, kind), {}))
        read = Cluster.read_receipts

        def reading(*args: Any, **options: Any) -> Any:
            stage.step()
            return read(*args, **options)

        patch.setattr(Cluster, "read_receipts", reading)

    def step(self) -> None:
        if threading.get_ident() == self._who:
            if self._left == 0:
                self._who = 0
                self._act()
            self._left -= 1

    def at(self, number: int, act: Callable[[], object], play: Callable[[], object]) -> bool:
        """Let one play, and the other act at that step; False when there was no such step."""
        self._left, self._act, self._who = number, act, threading.get_ident()
        with suppress(KafkaFailed):
            play()
        reached, self._who = self._who == 0, 0
        return reached


def publish_once(sink: KafkaSink, number: int, job: JobIdentity) -> None:
    """One row, in an epoch of its number."""
    assert send(sink, slot_of(sink, numbers(number), epoch=number, job=job), epoch=number, job=job)


def publish(sink: KafkaSink, number: int, job: JobIdentity) -> None:
    """Until it is in, as the publisher does."""
    for _ in range(20):
        with suppress(KafkaFailed):
            return publish_once(sink, number, job)
    raise AssertionError("it was never sent")


@pytest.mark.parametrize("begins", ["for the first time", "with an open session", "known but closed"])
def test_wherever_the_old_driver_is_paused_and_another_prefix_takes_over_each_row_is_there_once(
    workspace: KafkaWorkspace, monkeypatch: pytest.MonkeyPatch, begins: str, record_sweep: list[str]
) -> None:
    stage, epoch, points, is_reached = Stage(monkeypatch), 0, 0, True
    while is_reached:
        epoch += 2
        # A generation of its own for every point: what one has announced is nothing to the next.
        job = JobIdentity(JOB.name, Generation(f"aaaa{points:04d}"))
        old, new = (workspace.sink(id_prefix=prefix, timeout_s=3) for prefix in ("old", "new"))
        if begins != "for the first time":
            publish(old, epoch, job)
        if begins == "known but closed":
            old = workspace.sink(id_prefix="old", timeout_s=3)
        take_over = partial(publish, new, epoch + 1, job)
        is_reached = stage.at(points, take_over, partial(publish_once, old, epoch + 1, job))
        publish(old, epoch + 1, job)
        points += is_reached
    both = begins != "for the first time"
    assert ids(workspace.rows()) == [n for n in range(2, epoch + 2) if both or n % 2]
    assert points >= 4
    record_sweep.append(f"Kafka, another prefix takes over {begins}: {points} points")


def test_drivers_of_three_prefixes_that_publish_the_same_epochs_at_once_send_each_row_once(
    workspace: KafkaWorkspace,
) -> None:
    print(f"seed {SEED}")
    together = threading.Barrier(3)
    failures: list[BaseException] = []

    def publish_all(number: int) -> None:
        chance = random.Random(SEED + number)
        sink = workspace.sink(id_prefix=f"p{number}")
        try:
            for epoch in range(5):
                together.wait(120)
                if chance.random() < 0.5:
                    sink = workspace.sink(id_prefix=f"p{chance.randrange(3)}")
                for _ in range(200):
                    with suppress(KafkaFailed):
                        assert write(sink, numbers(epoch), epoch=epoch)
                        break
                else:
                    raise AssertionError("they hinder each other for ever")
        except BaseException as error:
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=publish_all, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert ids(workspace.rows()) == list(range(5))
