"""A committer that remembers each slot as a field of a hash in Redis."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from onceward.connections.redis import checked_url, driver, patient_client
from onceward.contracts import CheckpointCommitter
from onceward.errors import ConfigurationError, OncewardError
from onceward.identity import JobIdentity, SinkName


class RedisCheckpointCommitter(CheckpointCommitter):
    """One field per slot and epoch, `<epoch>/<slot>`, in a hash for each job, generation and sink.

    It remembers as well as its server does: one without an append-only file forgets what it was told since its last
    snapshot when it stops, and the slots concerned are then sent again.
    """

    def __init__(self, url: str, prefix: str = "onceward", *, timeout_s: float = 30.0) -> None:
        driver()
        if not prefix or set(prefix) & set("{} \n"):
            raise ConfigurationError(f"{prefix!r} cannot begin a key", hint="give a short text without braces")
        if timeout_s <= 0:
            raise ConfigurationError(f"timeout_s is {timeout_s}", hint="give seconds")
        self._url = checked_url(url)
        self.prefix = prefix
        self.timeout_s = timeout_s
        self._key: str | None = None

    def open(self, job: JobIdentity, sink: SinkName) -> None:
        """Keep to this job, generation and sink. Redis makes the hash with its first field."""
        names = (quote(name, safe="") for name in (job.name, job.generation, sink))
        self._key = ":".join([self.prefix, "checkpoints", *names])

    def is_checkpoint_committed(self, slot: int, checkpoint_id: int) -> bool:
        """Whether the slot has its field."""
        key = self._opened()
        with patient_client(self._url, self.timeout_s) as client:
            return bool(client.hexists(key, f"{checkpoint_id}/{slot}"))

    def commit_checkpoint(self, slot: int, checkpoint_id: int) -> None:
        """Add the slot's field; that it is there already is fine."""
        key = self._opened()
        with patient_client(self._url, self.timeout_s) as client:
            client.hsetnx(key, f"{checkpoint_id}/{slot}", datetime.now(UTC).isoformat(timespec="seconds"))

    def forget(self, below: int) -> None:
        """Remove the fields of settled epochs."""
        key = self._opened()
        with patient_client(self._url, self.timeout_s) as client:
            names: Any = client.hkeys(key)
            old = [name for name in names if int(name.split(b"/")[0]) < below]
            for start in range(0, len(old), 1000):
                client.hdel(key, *old[start : start + 1000])

    def _opened(self) -> str:
        if self._key is None:
            raise OncewardError("the checkpoint committer was used before it was opened", hint="call open first")
        return self._key
