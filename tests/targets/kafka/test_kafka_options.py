"""Options that cannot work are refused before anything moves; secrets are shown nowhere."""

import pickle
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from topics import JOB, KafkaWorkspace

from onceward.contracts import Severity, Workload
from onceward.errors import ConfigurationError, TargetRefused, TargetUnavailable
from onceward.identity import Generation, JobIdentity, JobName, SinkName
from onceward.sinks import KafkaSink
from onceward.sinks.kafka.client import RepeatFilter, log
from onceward.sinks.kafka.cluster import Cluster, Described
from onceward.sinks.kafka.compatibility import fitting_columns
from onceward.sinks.kafka.options import Choice
from onceward.sinks.kafka.receipts import Receipts

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "a b"}, "topic is 'a b'"),
        ({"topic": ".."}, "topic is '..'"),
        ({"topic": "x" * 250}, "topic is"),
        ({"topic": "t", "receipts_topic": "t"}, "the same"),
        ({"topic": "t", "topic_column": "c"}, "both topic and topic_column"),
        ({"topic": "t", "format": "avro"}, "format is 'avro'"),
        ({"topic": "t", "format": "bytes"}, "of one column"),
        ({"topic": "t", "compression": "rar"}, "compression is 'rar'"),
        ({"topic": "t", "max_rows_per_transaction": 0}, "max_rows_per_transaction is 0"),
        ({"topic": "t", "create_partitions": 0}, "create_partitions is 0"),
        ({"topic": "t", "transaction_timeout_s": 0}, "transaction_timeout_s is 0"),
        ({"topic": "t", "timeout_s": 0}, "timeout_s is 0"),
        ({"topic": "t", "id_prefix": "a/b"}, "id_prefix is"),
        ({"topic": "t", "config": {"acks": "1"}}, "acks cannot be set"),
        ({"topic": "t", "config": {"enable.idempotence": False}}, "cannot be set"),
        ({"topic": "t", "config": {"transactional.id": "mine"}}, "cannot be set"),
        ({"topic": "t", "config": {"message.timeout.ms": 0}}, "message.timeout.ms is 0 in config"),
        ({"topic": "t", "config": {"error_cb": print}}, "error_cb in config is a builtin"),
        ({"topic": "t", "config": {"no.such.setting": 1}}, "does not take config"),
        ({"topic": "t", "config": {"max.in.flight": 100}}, "does not take config"),
    ],
)
def test_a_wrong_option_is_refused_when_the_sink_is_made(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        KafkaSink("localhost:9092", **options)


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:9092, other:9092", "a:1,,b:2", "kafka://a:9092/"])
def test_addresses_without_a_port_are_refused(servers: str) -> None:
    with pytest.raises(ConfigurationError, match="names no brokers"):
        KafkaSink(servers, topic="t")


def test_secrets_are_in_no_text_about_the_sink() -> None:
    """Scenario 71."""
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "us",
        "sasl.password": "hush-1",
        "ssl.key.password": "hush-2",
    }
    sink = KafkaSink("localhost:9092", topic="t", config=config)
    shown = repr(sink) + repr(sink.settings) + str(sink.settings)
    assert "hush" not in shown
    assert "'sasl.username': 'us'" in shown
    assert sink.settings.clean("no hush-1 for hush-2") == "no *** for ***"
    assert pickle.loads(pickle.dumps(sink)).settings.config == config
    with pytest.raises(ConfigurationError) as caught:
        KafkaSink("localhost:9092", topic="t", config={**config, "sasl.mechanism": "hush-1"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("choice", "fields", "says"),
    [
        (Choice(), [("id", pa.int64())], "no topic is named"),
        (Choice("t", key=("k",)), [("id", pa.int64())], "no column 'k'"),
        (Choice("t", value=("v", "w")), [("v", pa.int64())], "no column 'w'"),
        (Choice("t"), [("value", pa.string()), ("value", pa.string())], "more than one column 'value'"),
        (Choice("t"), [("value", pa.string()), ("partition", pa.string())], "column 'partition' is string"),
        (Choice("t"), [("value", pa.string()), ("headers", pa.string())], "column 'headers' is string"),
        (Choice("t", timestamp="at"), [("at", pa.string())], "column 'at' is string"),
        (Choice(topic_column="n"), [("n", pa.int64()), ("v", pa.int64())], "column 'n' is bigint"),
        (Choice("t", value=("v",), format="bytes"), [("v", pa.int64())], "column 'v' is bigint"),
        (Choice("t"), [("d", pa.duration("s"))], "column 'd' is interval"),
        (Choice(), [("topic", pa.string())], "no column is left"),
    ],
)
def test_rows_that_do_not_fit_the_options_are_refused(
    choice: Choice, fields: list[tuple[str, pa.DataType]], says: str
) -> None:
    """Scenario 69."""
    with pytest.raises(TargetRefused, match=says):
        fitting_columns(choice, pa.schema([pa.field(name, kind) for name, kind in fields]))


def test_the_columns_of_spark_are_found_by_their_names() -> None:
    fields = [("key", pa.binary()), ("value", pa.string()), ("topic", pa.string()), ("headers", HEADERS)]
    found = fitting_columns(Choice(), pa.schema([*fields, ("partition", pa.int32()), ("other", pa.int64())]))
    assert (found.topic_column, found.key, found.value) == ("topic", ("key",), ("value",))
    assert (found.headers, found.partition) == ("headers", "partition")
    assert fitting_columns(Choice("t"), pa.schema(fields)).topic_column is None, "the option wins, as in Spark"


def test_doctor_is_told_about_copies_and_limits(workspace: KafkaWorkspace) -> None:
    found = list(workspace.sink().diagnose(Workload(slots=2, unpublished_epochs=3)))
    assert {finding.about for finding in found} == {f"topic {workspace.topic}", f"topic {workspace.receipts_topic}"}
    assert all(finding.severity is Severity.WARNING and finding.fix for finding in found), "one broker keeps one copy"


def test_doctor_waits_for_a_broker_that_does_not_know_of_the_topics_yet(
    workspace: KafkaWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left them out without a word, in one of many runs."""
    describe, behind = Cluster.describe, 2

    def late(cluster: Cluster, names: Iterable[str]) -> dict[str, Described]:
        nonlocal behind
        behind -= 1
        return describe(cluster, [] if behind >= 0 else names)

    monkeypatch.setattr(Cluster, "describe", late)
    found = list(workspace.sink().diagnose(Workload(slots=2, unpublished_epochs=3)))
    assert {finding.about for finding in found} == {f"topic {workspace.topic}", f"topic {workspace.receipts_topic}"}


def test_doctor_is_told_of_a_topic_that_is_not_there(workspace: KafkaWorkspace) -> None:
    found = list(workspace.sink(topic="not-there").diagnose(Workload(slots=2, unpublished_epochs=3)))
    assert [finding.about for finding in found if finding.severity is Severity.ERROR] == ["topic not-there"]


def test_ids_are_fixed_and_those_of_other_jobs_and_sinks_differ() -> None:
    settings = KafkaSink("localhost:9092", topic="t").settings
    jobs = [JobIdentity(JobName(n), Generation(g)) for n in ("app-1", "app-10") for g in ("aaaaaaaa", "bbbbbbbb")]
    found = [settings.transactional_id(job, SinkName(sink)) for job in jobs for sink in ("a", "b")]
    assert len(set(found)) == len(found)
    assert settings.transactional_id(JOB, SinkName("a")) == settings.transactional_id(JOB, SinkName("a"))
    assert all(one.startswith("onceward-") for one in found)


# --- receipts as records ------------------------------------------------------------------------------


def read(*records: tuple[bytes, bytes | None]) -> Receipts:
    made = Receipts(JOB.name, SinkName("kafka"))
    for record in records:
        made.add(*record)
    return made


def test_records_of_others_and_of_no_one_are_passed_over() -> None:
    found = read(
        (b"rubbish", b"{}"),
        (b"[1]", b"{}"),
        (b'["ow1","page views","kafka 2","aaaaaaaa",1,0]', b'{"fingerprint":"f","slots":[0]}'),
        (b'["ow1","page view","kafka","aaaaaaaa",1,0]', b'{"fingerprint":"f","slots":[0]}'),
        (b'["ow2","page views","kafka","aaaaaaaa",1,0]', b'{"fingerprint":"f","slots":[0]}'),
    )
    assert list(found.all_receipts()) == []


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"fingerprint":"f"}', b'{"fingerprint":"f","slots":7}'])
def test_a_receipt_of_ours_that_cannot_be_read_stops_the_job(value: bytes) -> None:
    from onceward.errors import DamagedFile

    with pytest.raises(DamagedFile, match="cannot be read"):
        read((b'["ow1","page views","kafka","aaaaaaaa",1,0]', value))


def test_a_receipt_without_a_value_only_makes_room() -> None:
    """Whatever the cleaner has done so far, the answer is the same."""
    key = b'["ow1","page views","kafka","aaaaaaaa",%d,0]'
    body = b'{"fingerprint":"f","slots":[0],"rows":1}'
    receipts = [(key % epoch, body) for epoch in range(4)]
    mark = read(*receipts).raised_watermark(Generation("aaaaaaaa"), 3)
    assert [value for _, value in mark] == [b'{"settled":2}', None, None, None]
    uncleaned, cleaned = read(*receipts, *mark), read(receipts[3], *mark)
    for found in (uncleaned, cleaned):
        assert [receipt.epoch for receipt in found.all_receipts()] == [3]
        assert found.watermark(Generation("aaaaaaaa")) == 2
        assert found.raised_watermark(Generation("aaaaaaaa"), 3) == []


def test_brokers_that_are_away_are_told_of_once_and_not_ten_times_a_second(caplog: pytest.LogCaptureFixture) -> None:
    log.filters[:] = [RepeatFilter()]
    sink = KafkaSink("127.0.0.1:1", topic="t", timeout_s=2)
    with pytest.raises(TargetUnavailable, match="cannot use the brokers"):
        sink.check(pa.schema([("id", pa.int64())]), output_mode="append")
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(lines) == 1, lines
