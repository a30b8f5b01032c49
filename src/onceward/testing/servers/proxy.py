"""A connection that can be cut at the worst moment: after a request was carried out, before its answer arrives."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import Self

_CHUNK = 1 << 16


@dataclass
class _Rule:
    """Cut the connection on which `pattern` was sent, once that many answers have passed after it."""

    pattern: bytes
    answers: int
    times: int
    at: int | None


class Proxy:
    """Passes bytes between clients and a server on this machine; `port` is where clients find it.

    With no rule it changes nothing. It stands outside the client library, so what a test sees is what a user would see
    when a switch dies.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self._rule: _Rule | None = None
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, pattern: bytes, *, answers: int = 0, times: int = 1, at: int | None = None) -> None:
        """Let a request with this pattern through, then `answers` pieces of answer, and cut instead of the next one.

        A client that first prepares a statement and then runs it gets one answer for each: with `answers=1` the
        statement has been carried out when the connection is cut. `at` is where the pattern stands in a piece that the
        client sends, for protocols whose requests begin with their kind; without it the pattern may stand anywhere.
        """
        with self._lock:
            self._rule = _Rule(pattern, answers, times, at)

    def cut_no_more(self) -> None:
        """Let everything pass from here on."""
        with self._lock:
            self._rule = None

    def cut_all(self) -> None:
        """Cut every connection that is open now."""
        with self._lock:
            for end in list(self._open):
                _shut(end)

    def close(self) -> None:
        """Accept no more, and cut what is open."""
        _shut(self._listener)
        self._listener.close()
        self.cut_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            self.connect(client, server)

    def connect(self, client: socket.socket, server: socket.socket) -> None:
        """Begin to pass bytes between the two; for those who have something else in mind with them."""
        _Connection(self, client, server).start()

    def matched(self, before: bytes, data: bytes) -> int | None:
        """How many answers may still pass, if this request is one to be cut. `before` is what was sent before it."""
        with self._lock:
            rule = self._rule
            if rule is None or rule.times == 0:
                return None
            if rule.at is not None:
                before, data = b"", data[rule.at : rule.at + len(rule.pattern)]
            # Only what ends in these bytes: a rule that is made now is not meant for an earlier request.
            overlap = before[1 - len(rule.pattern) :] if len(rule.pattern) > 1 else b""
            if rule.pattern not in overlap + data:
                return None
            rule.times -= 1
            self.cuts += 1
            return rule.answers

    def forget(self, *ends: socket.socket) -> None:
        """These are closed."""
        with self._lock:
            self._open -= set(ends)


class _Connection:
    """Two threads, one for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._answers_left: int | None = None

    def start(self) -> None:
        for run in (self._upwards, self._downwards):
            threading.Thread(target=run, daemon=True).start()

    def _upwards(self) -> None:
        tail = b""
        with contextlib.suppress(OSError):
            while data := self._client.recv(_CHUNK):
                # A pattern may be spread over two pieces, but must not be found twice.
                if self._answers_left is None:
                    self._answers_left = self._proxy.matched(tail, data)
                tail = data[-64:]
                self._server.sendall(data)
        self._end()

    def _downwards(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(_CHUNK):
                if self._answers_left == 0:
                    break
                if self._answers_left is not None:
                    self._answers_left -= 1
                self._client.sendall(data)
        self._end()

    def _end(self) -> None:
        for end in (self._client, self._server):
            _shut(end)
        self._proxy.forget(self._client, self._server)
        for end in (self._client, self._server):
            end.close()


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
