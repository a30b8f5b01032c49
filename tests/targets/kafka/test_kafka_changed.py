"""Topics that change while a job runs (scenario 97): what it relies on stops it, what it can go on with is taken up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from topics import JOB, KafkaWorkspace, ids, numbers, send, slot_of, until, write

from onceward.errors import RowsRejected, TargetChanged
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.kafka.errors import _NAMES, CLASSES, KafkaFailed, classify
from onceward.sinks.kafka.receipts import Record
from onceward.sinks.kafka.session import Session
from onceward.testing import Failed, Harness, SinkUnderTest, Source
from onceward.testing.servers import KafkaServer

PAGE = Path(__file__).resolve().parents[3] / "docs" / "targets" / "kafka.md"


def delete(workspace: KafkaWorkspace, topic: str) -> None:
    admin = workspace.server.admin()
    admin.delete_topics([topic])[topic].result(10)
    until(lambda: topic not in admin.list_topics(timeout=10).topics)


def change(workspace: KafkaWorkspace, topic: str, **settings: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource("topic", topic, incremental_configs=entries)
    admin = workspace.server.admin()
    admin.incremental_alter_configs([resource])[resource].result(10)


def texts(*values: str, **columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({"value": list(values), **columns})


# --- the receipts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["open", "closed"])
def test_a_receipts_topic_that_is_deleted_while_running_stops_the_job_and_is_not_made_anew(
    workspace: KafkaWorkspace, session: str
) -> None:
    sink = workspace.sink()
    sink.target_facts()
    assert write(sink, numbers(1), epoch=1)
    delete(workspace, workspace.receipts_topic)
    if session == "closed":
        sink._end()
    for _ in range(2):
        with pytest.raises(
            TargetChanged, match=f"topic '{workspace.receipts_topic}', in which the receipts stand, is gone"
        ):
            write(sink, numbers(1), epoch=1)
    assert workspace.receipts_topic not in workspace.server.admin().list_topics(timeout=10).topics
    assert ids(workspace.rows()) == [1]


@pytest.mark.parametrize("session", ["open", "closed"])
def test_a_receipts_topic_that_was_made_anew_while_running_stops_the_job(
    workspace: KafkaWorkspace, session: str
) -> None:
    sink = workspace.sink()
    sink.target_facts()
    assert write(sink, numbers(1), epoch=1)
    delete(workspace, workspace.receipts_topic)
    workspace.server.create_topic(workspace.receipts_topic, cleanup_policy="compact")
    if session == "closed":
        sink._end()
    with pytest.raises(TargetChanged, match=f"topic {workspace.receipts_topic}: id was"):
        write(sink, numbers(1), epoch=1)
    assert ids(workspace.rows()) == [1]


def test_a_whole_job_ends_when_its_receipts_are_deleted_and_sends_nothing_again(workspace: KafkaWorkspace) -> None:
    """As it was found: the topic was made anew with a line in the log, and the epoch was sent again."""
    harness = Harness(
        SinkUnderTest(workspace.sink(check=True), workspace.rows, ordered=False), source=Source(ends=(4, 8))
    )
    sink = harness.subjects[0].sink
    publish, epochs = sink.send_transaction, []

    def deleting(slots: Any, job: Any, epoch: int, timestamp: Any) -> bool:
        done = publish(slots, job, epoch, timestamp)
        if not epochs:
            epochs.append(epoch)
            delete(workspace, workspace.receipts_topic)
            sink._end()
            return publish(slots, job, epoch, timestamp)
        return done

    sink.send_transaction = deleting
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetChanged)
    assert len(workspace.rows()) == 4


@pytest.mark.parametrize(
    ("setting", "value"),
    [("cleanup_policy", "delete"), ("min_insync_replicas", "2"), ("unclean_leader_election_enable", "true")],
)
def test_receipts_that_are_kept_otherwise_than_at_the_start_stop_the_job(
    workspace: KafkaWorkspace, setting: str, value: str
) -> None:
    sink = workspace.sink()
    facts = sink.target_facts()
    name = setting.replace("_", ".")
    assert f"topic {workspace.receipts_topic}: {name}" in facts
    assert write(sink, numbers(1), epoch=1)
    change(workspace, workspace.receipts_topic, **{setting: value})
    with pytest.raises(TargetChanged, match=rf"topic {workspace.receipts_topic}: {name} was \S+ and is {value}"):
        write(sink, numbers(2), epoch=2)
    assert ids(workspace.rows()) == [1]


def test_a_receipt_that_its_topic_does_not_take_is_no_fault_of_a_row(workspace: KafkaWorkspace) -> None:
    sink = workspace.sink()
    assert write(sink, numbers(1), epoch=1)
    change(workspace, workspace.receipts_topic, max_message_bytes="100")
    with pytest.raises(TargetChanged, match="does not take a receipt"):
        write(sink, numbers(2), epoch=2)


def test_the_facts_name_the_topics_and_how_the_brokers_keep_transactions(workspace: KafkaWorkspace) -> None:
    facts = workspace.sink().target_facts()
    assert {f"topic {workspace.topic}: id", f"topic {workspace.topic}: cleanup.policy"} <= facts.keys()
    assert facts["brokers: transaction.max.timeout.ms"] == "900000"
    assert "brokers: transactional.id.expiration.ms" in facts
    assert "topic __transaction_state: min.insync.replicas" in facts


# --- the topics of the rows ---------------------------------------------------------------------------


def test_a_topic_that_is_deleted_while_running_stops_the_job_and_a_start_goes_on_with_a_new_one(
    workspace: KafkaWorkspace,
) -> None:
    sink = workspace.sink()
    assert write(sink, numbers(1), epoch=1)
    delete(workspace, workspace.topic)
    with pytest.raises(TargetChanged, match=f"topic '{workspace.topic}' is gone"):
        write(sink, numbers(2), epoch=2)
    workspace.server.create_topic(workspace.topic)
    with pytest.raises(TargetChanged, match=f"topic {workspace.topic}: id was"):
        write(sink, numbers(2), epoch=2)
    sink.check(pa.schema([("id", pa.int64())]), output_mode="append")
    sink.target_facts()
    assert write(sink, numbers(2), epoch=2)
    assert ids(workspace.rows()) == [2]


def test_a_topic_of_a_column_that_was_there_before_is_no_fault_of_its_rows_when_it_is_gone(
    workspace: KafkaWorkspace, kafka: KafkaServer
) -> None:
    other = KafkaWorkspace(kafka)
    sink = workspace.sink(topic=None)
    assert write(sink, texts("a", "b", topic=[workspace.topic, other.topic]), epoch=1)
    delete(workspace, other.topic)
    with pytest.raises(TargetChanged, match=f"topic '{other.topic}' is gone"):
        write(sink, texts("a", "b", topic=[workspace.topic, other.topic]), epoch=2)
    assert len(workspace.messages()) == 1


def test_a_limit_lowered_while_running_is_noticed_at_the_next_epoch_and_the_row_named(
    workspace: KafkaWorkspace,
) -> None:
    """Scenario 56."""
    sink = workspace.sink(compression="none")
    assert write(sink, texts("x" * 50_000), epoch=1)
    change(workspace, workspace.topic, max_message_bytes="20000")
    with pytest.raises(RowsRejected, match="row 0 of slot 0 cannot be sent: it has 50000 bytes"):
        write(sink, texts("x" * 50_000), epoch=2)
    assert len(workspace.messages()) == 1


def test_a_limit_raised_while_running_lets_larger_rows_through(kafka: KafkaServer) -> None:
    workspace = KafkaWorkspace(kafka, max_message_bytes="20000")
    sink = workspace.sink(compression="none")
    assert write(sink, texts("x"), epoch=1)
    change(workspace, workspace.topic, max_message_bytes="2000000")
    assert write(sink, texts("x" * 1_500_000), epoch=2)
    assert sorted(len(message.value()) for message in workspace.messages()) == [1, 1_500_000]


def test_partitions_added_while_running_are_used(workspace: KafkaWorkspace) -> None:
    sink = workspace.sink()
    assert write(sink, texts("x", partition=[1]), epoch=1)
    workspace.server.grow_topic(workspace.topic, partitions=5)
    admin = workspace.server.admin()
    until(lambda: len(admin.list_topics(workspace.topic, timeout=10).topics[workspace.topic].partitions) == 5)
    assert write(sink, texts("y", partition=[4]), epoch=2)
    assert [(message.partition(), message.value()) for message in workspace.messages()] == [(1, b"x"), (4, b"y")]


@pytest.mark.parametrize("is_refused", ["behind the receipt", "before the receipt"])
def test_a_limit_lowered_between_the_look_and_the_sending_is_found_by_trial(
    workspace: KafkaWorkspace, monkeypatch: pytest.MonkeyPatch, is_refused: str
) -> None:
    """The brokers refuse the record; which one it is, is found before the job stops. Where they are faster than we are,
    the client does not take the receipt any more, and gives its own state as the reason."""
    send_receipts = Session._send_receipts

    def wait_and_send(session: Session, records: Sequence[Record]) -> None:
        def is_told() -> bool:
            session._producer.poll(0)
            return bool(session._producer.undelivered)

        until(is_told)
        send_receipts(session, records)

    sink = workspace.sink(compression="none")
    assert write(sink, texts("x"), epoch=1)
    change(workspace, workspace.topic, max_message_bytes="20000")
    monkeypatch.setattr(Session, "begin_epoch", lambda _: None)
    if is_refused == "before the receipt":
        monkeypatch.setattr(Session, "_send_receipts", wait_and_send)
    slot = slot_of(sink, texts("a", "x" * 50_000, "b"), epoch=2)
    with pytest.raises(RowsRejected, match="row 1 of slot 0"):
        send(sink, slot, epoch=2)
    assert len(workspace.messages()) == 1
    assert [row.row for row in sink.find_rejected([slot], JOB, 2)] == [1]


# --- the table of errors ------------------------------------------------------------------------------


def test_the_page_shows_the_table_of_errors_as_it_is() -> None:
    shown = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for kind in ErrorClass:
            if cells[0] == kind.value and kind is not ErrorClass.UNKNOWN:
                shown += [(code.strip(" `"), kind) for code in cells[1].split(",")]
    assert shown == list(CLASSES.items())


def test_every_name_in_the_table_is_one_of_the_client_and_in_one_class_only() -> None:
    import confluent_kafka

    assert len(CLASSES) == sum(len(names) for names in _NAMES.values())
    for name, kind in CLASSES.items():
        assert classify(KafkaFailed(name, getattr(confluent_kafka.KafkaError, name))) is kind
    assert classify(KafkaFailed("fatal", confluent_kafka.KafkaError._FATAL)) is ErrorClass.UNKNOWN
