"""The publisher: one epoch after another, from its decision to its marker."""

from .invariants import show
from .reading import Reading, Steps
from .rules import Rule
from .world import Driver, Fate, Slot, Staged, World, adopts, called, idle, names, put, swept


class Publisher(Reading):
    def publisher_idle(self, w: World, d: Driver) -> Steps:
        n = w.settled + 1
        limit = self.decided_up_to(w)
        if not self.has(Rule.DECISION_FIRST):
            limit = max((m.epoch for m in w.manifests), default=-1)
        for epoch in range(n, limit + 1) if not self.has(Rule.IN_ORDER) else range(n, min(n, limit) + 1):
            yield put(w, d, d._replace(publisher="fates", publishing=epoch), f"publisher sees epoch {epoch} decided")
        if w.prunes and w.pruned < w.settled:
            kept = frozenset(r for r in w.receipts if r.epoch > w.settled)
            pruned = w._replace(receipts=kept, prunes=w.prunes - 1, pruned=w.settled)
            yield put(pruned, d, d, f"prunes receipts up to epoch {w.settled}")

    def publisher_fates(self, w: World, d: Driver) -> Steps:
        """Close every open reservation, then read the one manifest that counts (and its segments, into memory)."""
        n = d.publishing
        waiting = sorted(r for r in w.registers if r.epoch == n and r.fate == Fate.OPEN)
        if waiting and self.has(Rule.REFUSE):
            refused = w.registers - {waiting[0]} | {waiting[0]._replace(fate=Fate.REFUSED)}
            yield put(
                w._replace(registers=refused), d, d, f"publisher creates fate {n}.{waiting[0].takeover} = refused"
            )
            return
        m = self.valid_manifest(w, n)
        if n <= w.settled and self.has(Rule.SETTLED_LAST if m else Rule.LOOK_AGAIN):
            yield put(w, d, idle(d), f"publisher looks again: epoch {n} is settled")
        elif m is not None:
            if n > w.settled and self.bounds.slots(n) and Staged(Slot.WAL, n, m.staged, m.run, 0) not in w.staged:
                w = w._replace(broken=f"the segment of decided epoch {n} is gone")
            yield put(w, d, d._replace(publisher="publish_txn", manifest=m), f"publisher reads {n}.{m.takeover}")
        elif not any(adopts(x, n, self.valid_takeover(w, n)) for x in w.drivers):
            # It pauses before it gives up, so a taker that lives gets to adopt what was decided.
            yield self._stop(w, d, "EpochLost", n)

    def publisher_publish_txn(self, w: World, d: Driver) -> Steps:
        """COMMIT PREPARED; its receipt was written inside it and is keyed by the transaction's full name."""
        n, m, after = d.publishing, d.manifest, d._replace(publisher="publish_wal")
        assert m is not None
        named = {s for s in w.staged if s.slot == Slot.TXN and s.epoch == n}
        if self.has(Rule.NAMED_ONLY):
            named = {s for s in named if names(m, s)}
        if named:
            for s in sorted(named):
                w = show(w, s, receipt=self.has(Rule.RECEIPT))
            yield put(w._replace(staged=w.staged - named), d, after, f"publisher commits {called(named)}")
            return
        receipt = any(r.slot == Slot.TXN and (r.epoch, r.run) == (n, m.run) for r in w.receipts)
        if n in self.bounds.empty or receipt or (n <= w.pruned and self.has(Rule.PRUNE_MARK)):
            yield put(w, d, after, f"publisher finds the transaction of epoch {n} committed")
        else:
            lost = w._replace(broken=f"the transaction of decided epoch {n} is gone and has no receipt")
            yield put(lost, d, after, f"publisher finds no transaction of epoch {n}")

    def publisher_publish_wal(self, w: World, d: Driver) -> Steps:
        """One target transaction: watermark, receipt (unique by epoch and slot), rows."""
        n, m, after = d.publishing, d.manifest, d._replace(publisher="settle")
        assert m is not None
        receipt = any(r.slot == Slot.WAL and r.epoch == n for r in w.receipts)
        if n in self.bounds.empty or receipt or (n <= w.pruned and self.has(Rule.PRUNE_MARK)):
            yield put(w, d, after, f"publisher finds the segment of epoch {n} published")
        else:
            segment = Staged(Slot.WAL, n, m.staged, m.run, 0)
            w = show(w, segment, receipt=self.has(Rule.RECEIPT))
            yield put(w, d, after, f"publisher sends {called({segment})}")

    def publisher_settle(self, w: World, d: Driver) -> Steps:
        after = d._replace(publisher="clean")
        if not self.has(Rule.MARKER_FIRST) and any(m.epoch == d.publishing for m in w.manifests):
            yield put(swept(w, d.publishing), d, d, f"publisher removes the files of epoch {d.publishing}")
        else:
            settled = w._replace(settled=max(w.settled, d.publishing))
            yield put(settled, d, after, f"publisher settles epoch {d.publishing}")

    def publisher_clean(self, w: World, d: Driver) -> Steps:
        yield put(
            swept(w, d.publishing),
            d,
            idle(d),
            f"publisher removes the files of epoch {d.publishing}",
        )
