"""Kafka: one broker that is its own controller (KRaft), from the jars that `tools/setup-maven-servers` brings."""

from __future__ import annotations

import base64
import os
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from onceward.testing.servers.base import Server, ServerMissing, free_port
from onceward.testing.servers.proxy import Proxy

JARS_VARIABLE = "ONCEWARD_KAFKA_JARS"
"""Names the folder with the broker's jars: `libs` of a Kafka distribution, or what `tools/setup-maven-servers` made."""

_JAVA_OPTIONS = (
    "-Xmx512m",
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    # What Java has to say of an archive that another Java has made is not to be read as a tool's output.
    "-Xlog:disable",
    "-Xlog:all=warning:stderr",
    "-Djava.awt.headless=true",
)

_ARCHIVE = "classes.jsa"
"""Beside the jars, from `tools/archive-kafka`: classes as Java has parsed them. Without it a broker starts as well."""

# Right for one broker that has to start soon and is asked for little.
_SETTINGS: Mapping[str, str | int] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "inter.broker.listener.name": "CLIENT",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
    "num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    # Long, for on a busy machine a broker whose heartbeats are late is cut off from its partitions.
    "broker.session.timeout.ms": 60_000,
    "broker.heartbeat.interval.ms": 500,
    "controller.quorum.election.timeout.ms": 250,
    "auto.create.topics.enable": "false",
    # A transaction that timed out is noticed at the next look.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.cleaner.backoff.ms": 1000,
}

SOON_BACK: Mapping[str, str | int] = {"broker_session_timeout_ms": 3000}
"""A broker that was killed is let in again only when the controller has given up the one before it."""

_READ_COMMITTED = "--isolation-level=read_committed"

_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class KafkaServer(Server):
    """A broker of its own. Settings are those of server.properties, with `_` for the dots.

    One that is to be killed and started again needs `SOON_BACK`.

    Clients that come by `detour`, a proxy of its own, are told to come back that way, so that all they send goes
    through it and can be cut.
    """

    package: ClassVar[str] = "kafka"
    programs: ClassVar[tuple[str, ...]] = ("java",)
    # A few seconds of processor time, which on a machine with much else to do can take a while to get.
    starts_within_s: ClassVar[float] = 240.0
    format_options: ClassVar[tuple[str, ...]] = ()
    """For the tool that prepares its storage, such as users to begin with."""

    def __init__(self, **settings: str | int) -> None:
        self._jars = _find_jars()
        super().__init__(**settings)
        self._controller_port = free_port()
        self._detour_port = free_port()
        self.detour = Proxy(self._detour_port)

    @classmethod
    def find(cls, *programs: str) -> str:
        """Java, as Spark would find it."""
        home = os.environ.get("JAVA_HOME")
        if home:
            return str(Path(home) / "bin" / "java")
        try:
            return super().find(*programs)
        except ServerMissing:
            raise ServerMissing("Kafka needs Java 17 or newer (run tools/setup-java)") from None

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    @property
    def detour_bootstrap(self) -> str:
        """Where clients find it that can be cut off."""
        return f"127.0.0.1:{self.detour.port}"

    def close(self) -> None:
        """See `Server.close`."""
        self.detour.close()
        super().close()

    def prepare(self) -> None:
        """See `Server.prepare`."""
        (self.folder / "log4j2.properties").write_text(_LOGGING)
        self._write_properties()
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        options = [f"--cluster-id={cluster}", "--config=server.properties", *self.format_options]
        self.run(*self._java("kafka.tools.StorageTool"), "format", *options)

    def command(self) -> Sequence[str]:
        """See `Server.command`."""
        self._write_properties()
        return [*self._java("kafka.Kafka"), "server.properties"]

    def answers(self) -> bool:
        """See `Server.answers`. A port that listens is not enough: the broker must be ready to lead partitions."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=1):
            pass
        return bool(self.admin().list_topics(timeout=2).brokers)

    def admin(self) -> Any:
        """A client for topics and settings."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **self.client_settings()})

    def client_settings(self) -> dict[str, str]:
        """What every client needs besides the address; nothing unless a subclass secures the broker."""
        return {}

    def create_topic(self, name: str, *, partitions: int = 1, **config: str) -> str:
        """Make a topic; `_` stands for the dots of its settings."""
        from confluent_kafka.cimpl import NewTopic

        wanted = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=wanted)
        admin = self.admin()
        admin.create_topics([topic])[name].result(30)
        # The controller has made it; the broker, which is asked about it next, learns of it a moment later.
        deadline = time.monotonic() + 30.0
        while not _is_led(admin.list_topics(name, timeout=30).topics.get(name), partitions):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the broker does not know of topic {name!r}, which was made")
            time.sleep(0.02)
        return name

    def delete_topics(self, *names: str) -> None:
        """With all that stands in them."""
        admin = self.admin()
        for done in admin.delete_topics(list(names)).values():
            done.result(30)

    def grow_topic(self, name: str, *, partitions: int) -> None:
        """Let it have so many partitions."""
        from confluent_kafka.cimpl import NewPartitions

        admin = self.admin()
        admin.create_partitions([NewPartitions(name, partitions)])[name].result(30)

    def console_consumer(self, topic: str, *, partition: int) -> list[str]:
        """The command of Kafka's own consumer: prints the committed values of a partition, one a line, until ended."""
        wanted = {"bootstrap-server": self.bootstrap, "topic": topic, "partition": partition, "offset": "earliest"}
        options = [f"--{name}={value}" for name, value in wanted.items()]
        return [*self._java("org.apache.kafka.tools.consumer.ConsoleConsumer"), *options, _READ_COMMITTED]

    def transactions(self, *arguments: str) -> str:
        """What Kafka's own tool for transactions prints."""
        tool = self._java("org.apache.kafka.tools.TransactionsCommand")
        return self.run(*tool, f"--bootstrap-server={self.bootstrap}", *arguments)

    def _write_properties(self) -> None:
        client, detour = f"127.0.0.1:{self.port}", f"127.0.0.1:{self._detour_port}"
        settings = {
            **_SETTINGS,
            "listeners": f"CLIENT://{client},DETOUR://{detour},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"CLIENT://{client},DETOUR://{self.detour_bootstrap}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,DETOUR:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": self.folder / "data",
            **{name.replace("_", "."): value for name, value in self.settings.items()},
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.folder / "server.properties").write_text(text)

    def _java(self, main: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        archive = self._jars / _ARCHIVE
        shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
        return [self.program, *_JAVA_OPTIONS, *shared, logging, "-cp", f"{self._jars}/*", main]


def _is_led(topic: Any, partitions: int) -> bool:
    """Whether the broker knows all partitions of a topic, and who leads them."""
    if topic is None or topic.error is not None or len(topic.partitions) < partitions:
        return False
    return all(partition.leader >= 0 for partition in topic.partitions.values())


def _find_jars() -> Path:
    """In the folder that the variable names, or in the project's own."""
    named = os.environ.get(JARS_VARIABLE)
    project = Path(__file__).resolve().parents[4]
    for folder in [Path(named)] if named else [project / ".jars" / "kafka-broker", Path(".jars/kafka-broker")]:
        if any(folder.glob("kafka-server-*.jar")) or any(folder.glob("kafka_2.13-*.jar")):
            return folder.resolve()
    raise ServerMissing(
        "there are no jars of a Kafka broker (run tools/setup-maven-servers, or let "
        f"{JARS_VARIABLE} name the libs folder of a Kafka distribution)"
    )
