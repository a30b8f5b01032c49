"""A request to store records that reaches the broker late, when its transaction was given up long ago."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from topics import KafkaWorkspace, ids, numbers, until, write

from onceward.sinks.kafka.errors import KafkaFailed
from onceward.testing.servers import KafkaServer
from onceward.testing.servers.proxy import Proxy

_STORE = b"\0\0"
"""How a request to store records begins, behind its length."""


class SlowRoad(Proxy):
    """While `is_blocked`, requests to store records are kept back, with all that comes behind them on their connection.

    What was kept back can arrive later, even when nobody waits for it any more.
    """

    def __init__(self, port: int) -> None:
        self.is_blocked = False
        self._kept: list[tuple[socket.socket, bytes]] = []
        super().__init__(port)

    def connect(self, client: socket.socket, server: socket.socket) -> None:
        for run in (self._upwards, self._downwards):
            threading.Thread(target=run, args=(client, server), daemon=True).start()

    def kept(self, topic: str) -> int:
        """How many requests with this topic wait."""
        return sum(topic.encode() in request for _, request in self._kept)

    def let_arrive(self, topic: str) -> None:
        """Those for this topic; the others never do."""
        for server, request in self._kept:
            if topic.encode() in request:
                server.sendall(request)
        self._kept.clear()

    def _upwards(self, client: socket.socket, server: socket.socket) -> None:
        keeps = False
        with contextlib.suppress(OSError):
            while length := _exactly(client, 4):
                request = _exactly(client, int.from_bytes(length, "big"))
                keeps = keeps or (self.is_blocked and request.startswith(_STORE))
                if keeps:
                    self._kept.append((server, length + request))
                else:
                    server.sendall(length + request)
        if not keeps:
            server.close()

    def _downwards(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                with contextlib.suppress(OSError):
                    client.sendall(data)
        client.close()


def _exactly(end: socket.socket, count: int) -> bytes:
    """So many bytes, or none when the other side is done."""
    data = b""
    while len(data) < count:
        more = end.recv(count - len(data))
        if not more:
            return b""
        data += more
    return data


@pytest.fixture
def trusting(kafka: KafkaServer) -> Iterator[tuple[KafkaServer, SlowRoad]]:
    """A broker that does not ask whether a record belongs to an open transaction, as those before Kafka 3.6."""
    server = KafkaServer(transaction_partition_verification_enable="false")
    server.detour.close()
    server.detour = road = SlowRoad(server._detour_port)
    with server:
        yield server, road


def test_records_that_come_behind_the_abort_of_their_transaction_are_not_taken_for_the_next_one(
    trusting: tuple[KafkaServer, SlowRoad],
) -> None:
    server, road = trusting
    workspace = KafkaWorkspace(server, partitions=1, servers=server.detour_bootstrap)
    sink = workspace.sink()
    assert write(sink, numbers(0), epoch=1)
    # Only what is to be given up has little time, and as often as it takes until its request is on the road.
    sink._session._settings = replace(sink._session._settings, timeout_s=2)
    road.is_blocked = True
    while not road.kept(workspace.topic):
        with pytest.raises(KafkaFailed):
            write(sink, numbers(1), epoch=2)
    road.is_blocked = False
    before = len(workspace.messages(isolation="read_uncommitted"))
    road.let_arrive(workspace.topic)
    # Older brokers would take it now; that it is refused cannot be seen, so a moment must do.
    with contextlib.suppress(AssertionError):
        until(lambda: len(workspace.messages(isolation="read_uncommitted")) > before, within_s=1)
    assert write(sink, numbers(1), epoch=2)
    assert ids(workspace.rows()) == [0, 1]
