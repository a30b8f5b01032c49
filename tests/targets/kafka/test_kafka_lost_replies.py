"""The connection is cut after the broker did what it was asked, and before it could say so (scenario 5)."""

import random
import threading
from contextlib import suppress
from typing import Any

import pytest
from topics import JOB, KafkaWorkspace, ids, numbers, send, slot_of, write

from onceward.sinks import KafkaSink
from onceward.sinks.kafka.errors import KafkaFailed
from onceward.testing import Harness, SinkUnderTest, Source
from onceward.testing.servers import KafkaServer

SEED = 20261116
EPOCHS = 8
# The kinds of request, as they stand in the fifth and sixth byte of each.
PRODUCE, INIT_PRODUCER, ADD_PARTITIONS, END_TRANSACTION = (n.to_bytes(2, "big") for n in (0, 22, 24, 26))


@pytest.fixture
def detoured(kafka: KafkaServer) -> KafkaWorkspace:
    kafka.detour.cut_no_more()
    return KafkaWorkspace(kafka, servers=kafka.detour_bootstrap)


@pytest.mark.parametrize("kind", [END_TRANSACTION, PRODUCE, ADD_PARTITIONS], ids=["commit", "produce", "partitions"])
def test_every_record_is_there_once_after_lost_replies(
    detoured: KafkaWorkspace, kind: bytes, record_sweep: list[str]
) -> None:
    """Every epoch is sent until the sink confirms it; how many answers are lost in a row is drawn from the seed."""
    print(f"seed {SEED}")
    chance, proxy = random.Random(SEED), detoured.server.detour
    sink, cuts, tries = detoured.sink(timeout_s=5), proxy.cuts, 0
    for epoch in range(EPOCHS):
        slots = [slot_of(sink, numbers(10 * epoch + n), epoch=epoch, slot=n) for n in range(2)]
        proxy.cut_after(kind, at=4, times=chance.randrange(1, 4))
        while True:
            tries += 1
            with suppress(KafkaFailed):
                assert send(sink, *slots, epoch=epoch)
                break
    proxy.cut_no_more()
    assert ids(detoured.rows()) == [10 * epoch + n for epoch in range(EPOCHS) for n in range(2)]
    assert proxy.cuts - cuts >= EPOCHS
    record_sweep.append(f"Kafka lost replies: {proxy.cuts - cuts} cuts in {tries} tries of {EPOCHS} epochs")


def lose_every_commit(sink: KafkaSink, workspace: KafkaWorkspace, epoch: int) -> None:
    """The client gives up on its commit, which the broker has carried out: it asks again once an answer was lost."""
    detour, producer = workspace.server.detour, sink._session._producer
    commit, before = producer.commit_transaction, detour.cuts

    def give_up(timeout_s: float) -> None:
        assert timeout_s == sink.settings.timeout_s
        while True:
            try:
                return commit(0.2)
            except Exception:
                if detour.cuts >= before + 2:
                    raise

    producer.commit_transaction = give_up
    detour.cut_after(END_TRANSACTION, at=4, times=1_000_000)
    with pytest.raises(KafkaFailed):
        write(sink, numbers(epoch), epoch=epoch)
    detour.cut_no_more()


def test_a_commit_of_which_nobody_knows_is_found_and_not_repeated(detoured: KafkaWorkspace) -> None:
    sink = detoured.sink()
    assert write(sink, numbers(0), epoch=0)
    lose_every_commit(sink, detoured, 1)
    assert write(sink, numbers(1), epoch=1)
    assert ids(detoured.rows()) == [0, 1]
    assert {receipt.epoch for receipt in sink.receipts(JOB)} == {0, 1}


def test_without_the_receipt_the_same_cut_sends_the_row_twice(
    detoured: KafkaWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: let the sink not find its receipts, and it would."""
    sink = detoured.sink()
    assert write(sink, numbers(0), epoch=0)
    lose_every_commit(sink, detoured, 1)
    monkeypatch.setattr("onceward.sinks.kafka.receipts.Receipts.slots", lambda *_: {})
    assert write(sink, numbers(1), epoch=1)
    assert ids(detoured.rows()) == [0, 1, 1]


def test_a_lost_answer_to_the_first_request_of_a_start_is_asked_again(detoured: KafkaWorkspace) -> None:
    detoured.server.detour.cut_after(INIT_PRODUCER, at=4, times=2)
    sink = detoured.sink()
    while True:
        with suppress(KafkaFailed):
            assert list(sink.receipts(JOB)) == []
            break
    assert write(sink, numbers(1))
    assert ids(detoured.rows()) == [1]


def test_a_whole_job_survives_cut_connections(detoured: KafkaWorkspace) -> None:
    """The publisher itself repeats what was cut."""
    detoured.server.detour.cut_after(END_TRANSACTION, at=4, times=6)
    subject = SinkUnderTest(detoured.sink(key="key"), detoured.rows)
    harness = Harness(subject, source=Source(ends=(4, 9, 15, 16), keys=3), name="job that is cut off")
    harness.drain()
    assert harness.problems() == []


def test_two_drivers_that_publish_the_same_epochs_at_once_send_each_row_once(workspace: KafkaWorkspace) -> None:
    """Scenario 29: whoever takes the id fences the other, who takes it back and finds what is in."""
    together = threading.Barrier(2)
    failures: list[BaseException] = []

    def publish() -> None:
        sink = workspace.sink()
        try:
            for epoch in range(8):
                together.wait(60)
                slots = [slot_of(sink, numbers(10 * epoch + n), epoch=epoch, slot=n) for n in range(3)]
                for _ in range(100):
                    with suppress(KafkaFailed):
                        assert send(sink, *slots, epoch=epoch)
                        break
                else:
                    raise AssertionError("two drivers hinder each other for ever")
        except BaseException as error:
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=publish) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert ids(workspace.rows()) == [10 * epoch + n for epoch in range(8) for n in range(3)]


def test_a_driver_that_was_fenced_in_mid_publish_leaves_nothing(workspace: KafkaWorkspace) -> None:
    """Scenarios 28 and 30: it stands still with rows at the broker; another publishes the epoch; it wakes up."""
    paused, taker = workspace.sink(), workspace.sink()

    def rows() -> Any:
        yield numbers(1)
        assert write(taker, numbers(1, 2))
        yield numbers(2)

    with pytest.raises(KafkaFailed):
        send(paused, slot_of(paused, numbers(1), numbers(2), read=rows))
    assert ids(workspace.rows()) == [1, 2]
    assert send(paused, slot_of(paused, numbers(1), numbers(2))), "and now it finds the receipt"
    assert ids(workspace.rows()) == [1, 2]
