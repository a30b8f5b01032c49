"""What the sink's promises rest on in the server: that it evicts no receipt, and keeps what it has confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceward.connections.redis import RedisConnection
from onceward.contracts import refuse_change

POLICY = "maxmemory-policy"
JOURNAL = "append-only file"


def facts_of(policies: Iterable[str], *, keeps_journal: bool) -> dict[str, str]:
    """For a person, and for the manifests."""
    return {POLICY: ", ".join(policies), JOURNAL: "on" if keeps_journal else "off"}


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """Of one server, or of all servers of a cluster: the policies that are in use, and whether all keep a journal."""

    policies: tuple[str, ...]
    keeps_journal: bool

    @classmethod
    def of(cls, infos: Sequence[Mapping[str, Any]]) -> TargetFacts:
        """As the servers say themselves."""
        policies = {str(info.get("maxmemory_policy", "noeviction")) for info in infos}
        return cls(tuple(sorted(policies)), all(bool(info.get("aof_enabled")) for info in infos))

    @classmethod
    def take(cls, connection: RedisConnection) -> TargetFacts:
        """As they are now. A single server is not asked: it has told when the connection was opened."""
        return cls.of(
            [client.info() for client in connection.primaries()] if connection.is_cluster else [connection.info]
        )

    def facts(self) -> dict[str, str]:
        """See `facts_of`."""
        return facts_of(self.policies, keeps_journal=self.keeps_journal)

    def argument(self) -> str:
        """As the script compares them with what it finds."""
        return f"{','.join(self.policies)} {int(self.keeps_journal)}"

    def confirm(self, policy: str, *, keeps_journal: bool, epoch: int) -> None:
        """Raise `TargetChanged` when a server, as the script found it, is not as it was. A new journal is no harm."""
        policies = self.policies if policy in self.policies else (policy,)
        now = facts_of(policies, keeps_journal=self.keeps_journal and keeps_journal)
        refuse_change(self.facts(), now, epoch=epoch)
