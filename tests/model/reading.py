"""What every thread of a driver can read from storage and target, and how its run ends."""

from collections.abc import Iterator
from dataclasses import dataclass

from .invariants import after_stop
from .rules import Rule
from .world import Bounds, Driver, Fate, Manifest, Staged, Step, World, names, put

Steps = Iterator[Step]


@dataclass(frozen=True)
class Reading:
    bounds: Bounds
    removed: frozenset[Rule] = frozenset()

    def has(self, rule: Rule) -> bool:
        return rule not in self.removed

    def decided_up_to(self, w: World) -> int:
        """The decision rule: Spark never runs N again once commits/N or offsets/N+1 is there."""
        highest = max(w.commits, default=-1)
        return max(highest, w.offsets - 1) if self.has(Rule.OFFSETS_DECIDE) else highest

    def proven(self, w: World, n: int) -> bool:
        """The epoch was decided, even if the log has forgotten it: only a decided epoch has receipts."""
        return n <= w.settled or (self.has(Rule.FORGOTTEN) and any(r.epoch == n for r in w.receipts))

    def foreign(self, w: World, n: int) -> bool:
        """The target holds an epoch n that is not the one in today's offset log."""
        if not self.has(Rule.FINGERPRINT):
            return False
        if n <= w.settled and self.has(Rule.MARKER_PRINT):
            # The marker carries what was published: the visible rows stand in for it here.
            return any(r.epoch == n and r.fingerprint != w.fingerprints[n] for r in w.visible)
        return w.pruned > w.settled or any(r.epoch == n and r.fingerprint != w.fingerprints[n] for r in w.receipts)

    def valid_takeover(self, w: World, n: int) -> int:
        if not self.has(Rule.VOID_LOWER):
            return 0
        return max((r.takeover for r in w.registers if r.epoch == n and r.fate == Fate.TAKEN), default=0)

    def valid_manifest(self, w: World, n: int) -> Manifest | None:
        t = self.valid_takeover(w, n)
        return next((m for m in w.manifests if m.epoch == n and m.takeover == t), None)

    def overtaken(self, w: World, d: Driver) -> bool:
        return any(r.epoch == d.epoch and r.takeover > d.takeover and r.fate == Fate.TAKEN for r in w.registers)

    def reapable(self, w: World, s: Staged) -> bool:
        if s.epoch <= w.settled:
            return True
        m = self.valid_manifest(w, s.epoch)
        if m is None:
            return s.epoch <= self.decided_up_to(w) and not self.has(Rule.REAP_MANIFEST)
        return s.epoch <= self.decided_up_to(w) and not names(m, s)

    def _stop(self, w: World, d: Driver, why: str, n: int) -> Step:
        label = f"stops: {why}" + (f" of epoch {n}" if n >= 0 else "")
        return put(after_stop(w, why, n), d, Driver(), label)
