"""A broker with TLS, passwords (SCRAM) and permissions: what the docs say is enough, is enough; without it, refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from confluent_kafka import admin as kafka_admin
from topics import JOB, KafkaWorkspace, ids, numbers, send, slot_of, write

from onceward.errors import RowsRejected, TargetChanged, TargetRefused
from onceward.sinks import KafkaSink
from onceward.sinks.kafka.errors import KafkaFailed
from onceward.testing import Harness, SinkUnderTest, Source
from onceward.testing.servers import KafkaServer

IDS = pa.schema([("id", pa.int64())])
PASSWORD = "hush-hush"
ADMIN: Any = kafka_admin
Permission = tuple[str, str, str, str]
"""Resource, name, pattern, operation."""


class SecuredServer(KafkaServer):
    """Clients come by TLS, with a password, and may do what they were allowed; `admin` may do everything."""

    format_options: ClassVar[tuple[str, ...]] = tuple(
        f"--add-scram=SCRAM-SHA-512=[name={name},password={PASSWORD}]" for name in ("admin", "us")
    )

    def __init__(self) -> None:
        super().__init__(
            **{
                "listener.security.protocol.map": "CLIENT:SASL_SSL,DETOUR:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "DETOUR",
                "listener.name.client.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.client.scram-sha-512.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
                "listener.name.client.ssl.keystore.location": "broker.p12",
                "listener.name.client.ssl.keystore.type": "PKCS12",
                "listener.name.client.ssl.keystore.password": PASSWORD,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:admin;User:ANONYMOUS",
            }
        )

    def prepare(self) -> None:
        keytool = self.program.removesuffix("java") + "keytool"
        common = ["-alias", "broker", "-keystore", "broker.p12", "-storepass", PASSWORD]
        names = ["-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1", "-ext", "bc:c"]
        self.run(keytool, "-genkeypair", *common, *names, "-keyalg", "RSA", "-storetype", "PKCS12")
        self.run(keytool, "-exportcert", *common, "-rfc", "-file", "ca.pem")
        super().prepare()

    def client_settings(self, user: str = "admin", password: str = PASSWORD) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }

    def change(self, permissions: list[Permission], *, allow: bool) -> None:
        """Allow `us` this, or no longer."""
        makes = ADMIN.AclBinding if allow else ADMIN.AclBindingFilter
        rules = [
            makes(
                ADMIN.ResourceType[resource],
                name,
                ADMIN.ResourcePatternType[pattern],
                "User:us",
                "*",
                ADMIN.AclOperation[operation],
                ADMIN.AclPermissionType.ALLOW,
            )
            for resource, name, pattern, operation in permissions
        ]
        admin = self.admin()
        done = admin.create_acls(rules) if allow else admin.delete_acls(rules)
        for future in done.values():
            future.result(30)

    @contextmanager
    def without(self, permission: Permission) -> Iterator[None]:
        self.change([permission], allow=False)
        yield
        self.change([permission], allow=True)


def documented(workspace: KafkaWorkspace) -> list[Permission]:
    """The table in docs/targets/kafka.md."""
    return [
        *(("TOPIC", workspace.topic, "LITERAL", what) for what in ("WRITE", "DESCRIBE_CONFIGS")),
        *(("TOPIC", workspace.receipts_topic, "LITERAL", what) for what in ("READ", "WRITE", "DESCRIBE_CONFIGS")),
        ("TRANSACTIONAL_ID", "onceward-", "PREFIXED", "WRITE"),
    ]


@pytest.fixture(scope="module")
def secured(kafka: KafkaServer) -> Iterator[SecuredServer]:
    """The session's own proves that there is one to be had."""
    with SecuredServer() as server:
        yield server


@pytest.fixture
def workspace(secured: SecuredServer) -> KafkaWorkspace:
    made = KafkaWorkspace(secured)
    secured.change(documented(made), allow=True)
    return made


def sink_of(workspace: KafkaWorkspace, password: str = PASSWORD, **options: Any) -> KafkaSink:
    server: Any = workspace.server
    return workspace.sink(config={"linger.ms": 0, **server.client_settings("us", password)}, **options)


def test_what_the_docs_list_is_enough(workspace: KafkaWorkspace) -> None:
    subject = SinkUnderTest(sink_of(workspace, key="key"), workspace.rows)
    harness = Harness(subject, source=Source(ends=(3, 6, 9), keys=3))
    harness.drain()
    assert harness.problems() == []


@pytest.mark.parametrize("number", [0, 2, 3, 4, 5])
def test_without_any_of_it_the_sink_is_refused_and_says_what_is_missing(
    number: int, workspace: KafkaWorkspace, secured: SecuredServer
) -> None:
    _, name, _, operation = missing = documented(workspace)[number]
    with secured.without(missing), pytest.raises(TargetRefused) as refused:
        sink_of(workspace).check(IDS, output_mode="append")
    assert name in str(refused.value)
    assert operation in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_without_sight_of_how_large_a_record_may_be_rows_are_sent_all_the_same(
    workspace: KafkaWorkspace, secured: SecuredServer
) -> None:
    with secured.without(documented(workspace)[1]):
        sink = sink_of(workspace)
        sink.check(IDS, output_mode="append")
        assert write(sink, numbers(1))
    assert ids(workspace.rows()) == [1]


def test_rows_that_only_the_brokers_know_to_be_too_large_are_found_by_trial(secured: SecuredServer) -> None:
    """Nobody told us the limit: neither a batch nor a record may be blamed before it was sent alone."""
    workspace = KafkaWorkspace(secured, partitions=1, max_message_bytes="5000")
    secured.change(
        [one for one in documented(workspace) if one[1:] != (workspace.topic, "LITERAL", "DESCRIBE_CONFIGS")],
        allow=True,
    )
    sink = sink_of(workspace, compression="none")
    values = [str(number) * 100 if number in range(10, 99) else "x" * 9_000 for number in range(10, 101)]
    slot = slot_of(sink, pa.record_batch({"value": values}))
    with pytest.raises(RowsRejected, match=r"row 89 of slot 0 cannot be sent: .*too large"):
        send(sink, slot)
    assert [row.row for row in sink.find_rejected([slot], JOB, 7)] == [89, 90]
    assert workspace.messages() == []
    rest = slot_of(sink, pa.record_batch({"value": values[:89]}))
    for _ in range(8):
        with suppress(KafkaFailed):
            assert send(sink, rest)
            break
    assert len(workspace.messages()) == 89


def test_an_id_that_may_not_be_taken_from_its_owner_is_refused_by_name(
    workspace: KafkaWorkspace, secured: SecuredServer
) -> None:
    assert write(sink_of(workspace), numbers(1), epoch=1)
    permissions = documented(workspace)
    secured.change([("TRANSACTIONAL_ID", "other-", "PREFIXED", "WRITE")], allow=True)
    with (
        secured.without(permissions[-1]),
        pytest.raises(TargetRefused, match=r"'onceward-\S+', which this user may not"),
    ):
        write(sink_of(workspace, id_prefix="other"), numbers(2), epoch=2)
    assert write(sink_of(workspace, id_prefix="other"), numbers(2), epoch=2)
    with secured.without(permissions[-1]):
        assert write(sink_of(workspace, id_prefix="other"), numbers(3), epoch=3)
    assert ids(workspace.rows()) == [1, 2, 3]


def test_a_permission_that_is_taken_away_while_running_is_named(
    workspace: KafkaWorkspace, secured: SecuredServer
) -> None:
    sink = sink_of(workspace)
    sink.check(IDS, output_mode="append")
    with secured.without(documented(workspace)[0]), pytest.raises(TargetChanged, match=r"(?i)authorization failed"):
        write(sink, numbers(1))
    assert write(sink, numbers(1))
    assert ids(workspace.rows()) == [1]


def test_a_wrong_password_is_refused_and_not_shown(workspace: KafkaWorkspace) -> None:
    """Scenarios 68 and 71."""
    sink = sink_of(workspace, "wrong-and-secret", timeout_s=3)
    with pytest.raises(TargetRefused, match=r"(?i)authentication") as refused:
        sink.check(IDS, output_mode="append")
    with pytest.raises(KafkaFailed, match=r"(?i)authentication") as failed:
        write(sink, numbers(1))
    for text in (str(refused.value), repr(refused.value), str(failed.value), repr(sink), repr(sink.settings)):
        assert "wrong-and-secret" not in text


def test_a_certificate_that_nobody_vouches_for_is_refused(workspace: KafkaWorkspace) -> None:
    server: Any = workspace.server
    config = {name: value for name, value in server.client_settings("us").items() if name != "ssl.ca.location"}
    sink = workspace.sink(config=config, timeout_s=3)
    with pytest.raises(TargetRefused, match=r"(?i)certificate"):
        sink.check(IDS, output_mode="append")
