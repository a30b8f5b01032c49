"""The protocol of onceward as an explicit-state model: small enough to be read as its specification.

Actors
    driver     one process on the checkpoint; a life of it is a *run*. It has three threads that interleave freely:
               the engine (recovery, then Spark's loop with our `foreachBatch` in it), the publisher, the reaper.
    target     two slots an epoch, each published by its own target transaction: `TXN`, a prepared transaction
               (two-phase sink), and `WAL`, a write-ahead segment.
    adversary  crashes drivers at any step (recovery included), starts a second driver too early, delays task attempts
               until long after their run died, forgets `commits/N`, replaces the checkpoint by an older one.

A run computes an epoch anew, so its rows are a new *version* (`rand()`): the version is the run's number.
Every function below that starts with `engine_`, `publisher_` or `reaper_` is one atomic step (one read or one durable
write); anything may happen between two steps. Spark's own logs are checked first and written later: two steps, unfenced.

Rules are the members of `Rule`; a model is built with the set of rules taken away. Invariants are checked by `_show`
(nothing early, nothing twice, no mixed versions, epochs in order), `_stop` (`EpochLost` is excused only by a driver that
was past its last check when the epoch was taken over; a run left alone never gets stuck) and `_judge_success` (a run
that reports success, and is the last one, leaves every epoch visible and nothing in the target that cannot be reaped).

Left out: generations and forks (other names, so disjoint), torn files (refused), time-outs of the target, `rewind`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Rule(StrEnum):
    """What the protocol asks for. The value says it in words; each is taken away once by the tests."""

    DECISION_FIRST = "publish only what is decided"
    OFFSETS_DECIDE = "offsets/N+1 decides N even when commits/N is gone (Spark goes on with N+1)"
    IN_ORDER = "publish upwards from the settled watermark, never past an unpublished epoch"
    RECEIPT = "a receipt inside the publishing transaction, looked for before publishing again"
    NAMED_ONLY = "publish only what the manifest names"
    EMPTY_MANIFEST = "every epoch has a manifest, an empty one too"
    MANIFEST_ONCE = "a manifest is write-once; the loser stops with Fenced"
    MARKER_FIRST = "the settled marker is durable before the manifest goes"
    LOOK_AGAIN = "a missing manifest is EpochLost only if the epoch is still unsettled on a second look"
    SETTLED_LAST = "a publisher reads the watermark after the manifest: a settled epoch's file name is free again"
    PRUNE_MARK = "receipts are pruned only below a watermark in the target, checked when publishing"
    TAKE_OVER = "an undecided epoch is taken over before it is aborted and run again"
    RESERVE = "a takeover is reserved before the log is read again"
    REREAD = "a taker reads the log again after its reservation"
    FATE_ONCE = "a fate is write-once"
    ABORT_LAST = "a taker aborts only after its fate is `taken`"
    ABORT_LOWER = "a taker aborts only transactions with a lower takeover number"
    OWN_NUMBER = "a takeover number belongs to one taker"
    REFUSE = "a publisher refuses every open reservation before it reads the manifest"
    VOID_LOWER = "below a taken takeover every manifest is void"
    CHECK_BEFORE = "a driver looks for a higher takeover right before its manifest"
    CHECK_AFTER = "a driver looks for a higher takeover right after its manifest"
    FORGOTTEN = "receipts of an undecided epoch prove that its decision was made and forgotten"
    EMPTY_PASS = "an epoch that is published already is consumed and stages nothing"
    FINGERPRINT = "receipts with another fingerprint mean another checkpoint: refuse"
    FIRST_SURVEY = "survey again at the first foreachBatch of a run"
    LAST_SURVEY = "survey again before success is reported"
    REAP_ORDER = "the reaper lists, then reads the log, then the manifest"
    REAP_DECIDED = "the reaper leaves undecided epochs alone"
    REAP_MANIFEST = "the reaper leaves a decided epoch alone while its valid manifest is missing"


class Slot(StrEnum):
    TXN = "transaction"
    WAL = "segment"


class Fate(StrEnum):
    OPEN = "reserved"
    TAKEN = "taken"
    REFUSED = "refused"


class Staged(NamedTuple):
    """What a task attempt left: invisible, durable, named by everything that tells attempts apart."""

    slot: Slot
    epoch: int
    takeover: int
    run: int
    attempt: int


class Manifest(NamedTuple):
    """Names attempt 0 of every slot of `run`; lies at `manifests/<epoch>.<takeover>`."""

    epoch: int
    takeover: int
    run: int


class Register(NamedTuple):
    """`<epoch>.<takeover>.reserved` together with its `.fate`."""

    epoch: int
    takeover: int
    fate: Fate


class Row(NamedTuple):
    """A slot's rows in the target, and (while not pruned) their receipt. `life` stands for the fingerprint."""

    slot: Slot
    epoch: int
    run: int
    attempt: int
    life: int


class Driver(NamedTuple):
    run: int = 0  # 0: down
    engine: str = ""
    epoch: int = -1
    takeover: int = 0
    surveyed: bool = False  # the first foreachBatch of this run has looked again
    replayed: int = -1  # the epoch that recovery found published though undecided
    publisher: str = "idle"
    publishing: int = -1
    manifest: Manifest | None = None
    reaper: str = "idle"
    suspect: Staged | None = None


class World(NamedTuple):
    # Spark's logs: the highest offsets entry, and the commits entries that are present.
    offsets: int = -1
    commits: frozenset[int] = frozenset()
    # onceward's files.
    manifests: frozenset[Manifest] = frozenset()
    registers: frozenset[Register] = frozenset()
    settled: int = -1
    # The target.
    staged: frozenset[Staged] = frozenset()
    receipts: frozenset[Row] = frozenset()
    visible: frozenset[Row] = frozenset()
    pruned: int = -1
    # The adversary: attempts yet to write, the checkpoint's life, and what is left of each budget.
    late: frozenset[Staged] = frozenset()
    life: int = 0
    runs: int = 0
    crashes: int = 0
    delays: int = 0
    forgets: int = 0
    rollbacks: int = 0
    prunes: int = 0
    reaps: int = 0
    # Ghosts, read by invariants only: epochs ever decided, epochs whose EpochLost is excused, what went wrong.
    decided: frozenset[int] = frozenset()
    excused: frozenset[int] = frozenset()
    broken: str = ""
    drivers: tuple[Driver, ...] = ()


class Step(NamedTuple):
    label: str
    world: World


@dataclass(frozen=True)
class Bounds:
    """How much the adversary may do. `runs` counts starts; one more, undisturbed, is allowed when all are down."""

    epochs: int = 2
    drivers: int = 2
    runs: int = 2
    crashes: int = 1
    delays: int = 0
    forgets: int = 0
    rollbacks: int = 0
    prunes: int = 0
    reaps: int = 0
    empty: frozenset[int] = frozenset()
    forget_while_running: bool = False


Steps = Iterator[Step]


@dataclass(frozen=True)
class Protocol:
    bounds: Bounds
    removed: frozenset[Rule] = field(default_factory=frozenset)

    def initial(self) -> World:
        b = self.bounds
        return World(runs=b.runs, crashes=b.crashes, delays=b.delays, forgets=b.forgets, rollbacks=b.rollbacks,
                     prunes=b.prunes, reaps=b.reaps, drivers=(Driver(),) * b.drivers)  # fmt: skip

    def has(self, rule: Rule) -> bool:
        return rule not in self.removed

    def steps(self, w: World) -> Steps:
        for d in dict.fromkeys(w.drivers):
            if d.run:
                yield from ENGINE[d.engine](self, w, d)
                yield from PUBLISHER[d.publisher](self, w, d)
                yield from REAPER[d.reaper](self, w, d)
        yield from self.adversary(w)

    # ---------------------------------------------------------------- what can be read from storage and target

    def decided_up_to(self, w: World) -> int:
        """The decision rule: Spark never runs N again once commits/N or offsets/N+1 is there."""
        highest = max(w.commits, default=-1)
        return max(highest, w.offsets - 1) if self.has(Rule.OFFSETS_DECIDE) else highest

    def proven(self, w: World, n: int) -> bool:
        """The epoch was decided, even if the log has forgotten it: only a decided epoch has receipts."""
        return n <= w.settled or (self.has(Rule.FORGOTTEN) and any(r.epoch == n for r in w.receipts))

    def foreign(self, w: World, n: int) -> bool:
        """The target holds epoch n of another life of this checkpoint."""
        unknown = w.pruned > w.settled or any(r.epoch == n and r.life != w.life for r in w.receipts)
        return unknown and self.has(Rule.FINGERPRINT)

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
        return s.epoch <= self.decided_up_to(w) and not _names(m, s)

    # ---------------------------------------------------------------- engine: recovery

    def engine_survey(self, w: World, d: Driver) -> Steps:
        """Read the log. What is decided is the publisher's: wait for it. The first undecided epoch is ours."""
        n = w.settled + 1
        if n <= self.decided_up_to(w):
            return
        if n <= w.offsets:
            yield _put(w, d, d._replace(engine="plan", epoch=n, takeover=0), f"surveys: epoch {n} is undecided")
        else:
            yield _put(w, d, d._replace(engine="start", epoch=-1), "surveys: no epoch to recover")

    def engine_plan(self, w: World, d: Driver) -> Steps:
        """Read watermark and receipts, after the log: an epoch decided meanwhile shows here or at the re-read."""
        n = d.epoch
        if self.foreign(w, n):
            yield self._stop(w, d, "Refused", n)
        elif n <= w.settled:
            start = d._replace(engine="start", replayed=n)
            yield _put(w, d, start, f"finds epoch {n} settled though undecided")
        elif self.proven(w, n):
            if d.publisher == "idle":
                publish = d._replace(publisher="fates", publishing=n)
                yield _put(w, d, publish, f"finds receipts of undecided epoch {n}: its decision was forgotten")
        elif not self.has(Rule.TAKE_OVER):
            yield _put(w, d, d._replace(engine="abort"), f"finds nothing of epoch {n}")
        else:
            yield _put(w, d, d._replace(engine="reserve"), f"finds nothing of epoch {n}")

    def engine_reserve(self, w: World, d: Driver) -> Steps:
        n = d.epoch
        t = 1 + max((r.takeover for r in w.registers if r.epoch == n), default=0)
        if not self.has(Rule.OWN_NUMBER):
            t = max((r.takeover for r in w.registers if r.epoch == n and r.fate == Fate.OPEN), default=t)
        after = d._replace(engine="reread" if self.has(Rule.REREAD) else "fate", takeover=t)
        if self.has(Rule.RESERVE):
            w = w._replace(registers=w.registers | {Register(n, t, Fate.OPEN)})
        yield _put(w, d, after, f"reserves {n}.{t}")

    def engine_reread(self, w: World, d: Driver) -> Steps:
        if d.epoch <= self.decided_up_to(w):
            yield _put(w, d, d._replace(engine="survey", epoch=-1, takeover=0), "reads the log again: decided")
        else:
            after = d._replace(engine="fate" if self.has(Rule.ABORT_LAST) else "abort")
            yield _put(w, d, after, f"reads the log again: epoch {d.epoch} is undecided")

    def engine_fate(self, w: World, d: Driver) -> Steps:
        """Create the fate. The one excuse for EpochLost: the epoch was decided since the re-read, or still can be by a
        driver past its last check. Neither can be seen from here, for Spark's log is not fenced."""
        n, t = d.epoch, d.takeover
        if self.has(Rule.FATE_ONCE) and Register(n, t, Fate.REFUSED) in w.registers:
            yield _put(w, d, d._replace(engine="survey", epoch=-1, takeover=0), f"finds {n}.{t} refused")
            return
        others = frozenset(r for r in w.registers if (r.epoch, r.takeover) != (n, t))
        zombie = any(x.engine in ("commit_check", "commit_write") and x.epoch == n for x in w.drivers)
        excused = w.excused | {n} if zombie or n in w.decided else w.excused
        w = w._replace(registers=others | {Register(n, t, Fate.TAKEN)}, excused=excused)
        after = d._replace(engine="abort" if self.has(Rule.ABORT_LAST) else "start")
        yield _put(w, d, after, f"creates fate {n}.{t} = taken")

    def engine_abort(self, w: World, d: Driver) -> Steps:
        n, t = d.epoch, d.takeover
        every = not (self.has(Rule.ABORT_LOWER) and self.has(Rule.TAKE_OVER))
        gone = {s for s in w.staged if s.epoch == n and (s.takeover < t or every)}
        after = d._replace(engine="start" if self.has(Rule.ABORT_LAST) else "fate")
        yield _put(w._replace(staged=w.staged - gone), d, after, f"aborts {_names_of(gone)}")

    # ---------------------------------------------------------------- engine: Spark's loop

    def engine_start(self, w: World, d: Driver) -> Steps:
        """Spark resumes at its highest offsets entry, or past it if that one is in the commit log."""
        again = w.offsets > max(w.commits, default=-1)
        yield self._go_to(w, d, w.offsets if again else w.offsets + 1, again, "Spark starts")

    def _go_to(self, w: World, d: Driver, n: int, again: bool, why: str) -> Step:
        if n >= self.bounds.epochs:
            return _put(w, d, d._replace(engine="finish", epoch=-1, takeover=0), f"{why}: no data left")
        t = d.takeover if n == d.epoch else 0
        after = d._replace(engine="enter" if again else "offset_check", epoch=n, takeover=t)
        return _put(w, d, after, f"{why} at epoch {n}")

    def engine_offset_check(self, w: World, d: Driver) -> Steps:
        if d.epoch <= w.offsets:
            yield self._stop(w, d, "ConcurrentUpdate", d.epoch)
        else:
            yield _put(w, d, d._replace(engine="offset_write"), f"sees no offsets/{d.epoch}")

    def engine_offset_write(self, w: World, d: Driver) -> Steps:
        w = w._replace(offsets=max(w.offsets, d.epoch))
        yield _put(w, d, d._replace(engine="enter"), f"writes offsets/{d.epoch}")

    def engine_enter(self, w: World, d: Driver) -> Steps:
        """foreachBatch begins. The first one of a run looks again before it trusts what recovery planned."""
        n = d.epoch
        survey = self.has(Rule.FIRST_SURVEY) and not d.surveyed
        d2 = d._replace(surveyed=True)
        published = self.has(Rule.EMPTY_PASS) and (d.replayed == n or (survey and self.proven(w, n)))
        if survey and self.foreign(w, n):
            yield self._stop(w, d, "Refused", n)
        elif published:
            yield _put(w, d, d2._replace(engine="commit_check"), f"consumes epoch {n}, published already")
        elif survey and n <= self.decided_up_to(w):
            yield self._stop(w, d, "Fenced", n)
        else:
            yield _put(w, d, d2._replace(engine="stage"), f"enters foreachBatch({n})")

    def engine_stage(self, w: World, d: Driver) -> Steps:
        """The winning attempts stage every slot. Any other attempt may write now, much later, or never."""
        n, t, run = d.epoch, d.takeover, d.run
        if n in self.bounds.empty and not self.has(Rule.EMPTY_MANIFEST):
            yield _put(w, d, d._replace(engine="commit_check"), f"stages nothing for epoch {n}")
            return
        staged = w.staged | {Staged(s, n, t, run, 0) for s in self.slots(n)}
        yield _put(w._replace(staged=staged), d, d._replace(engine="check_before"), f"stages epoch {n} as {n}.{t}")
        straggler = Staged(Slot.TXN, n, t, run, 1)
        if w.delays and straggler not in w.late | w.staged:
            lost = w._replace(late=w.late | {straggler}, delays=w.delays - 1)
            yield _put(lost, d, d, f"loses sight of a task attempt at epoch {n}")

    def slots(self, n: int) -> tuple[Slot, ...]:
        return () if n in self.bounds.empty else (Slot.TXN, Slot.WAL)

    def engine_check_before(self, w: World, d: Driver) -> Steps:
        if self.has(Rule.CHECK_BEFORE) and self.overtaken(w, d):
            yield self._stop(w, d, "Fenced", d.epoch)
        else:
            yield _put(w, d, d._replace(engine="manifest"), f"sees no takeover above {d.epoch}.{d.takeover}")

    def engine_manifest(self, w: World, d: Driver) -> Steps:
        n, t = d.epoch, d.takeover
        there = {m for m in w.manifests if (m.epoch, m.takeover) == (n, t)}
        if there and self.has(Rule.MANIFEST_ONCE):
            yield self._stop(w, d, "Fenced", n)
            return
        w = w._replace(manifests=w.manifests - there | {Manifest(n, t, d.run)})
        yield _put(w, d, d._replace(engine="check_after"), f"writes manifest {n}.{t}")
    def engine_check_after(self, w: World, d: Driver) -> Steps:
        if self.has(Rule.CHECK_AFTER) and self.overtaken(w, d):
            yield self._stop(w, d, "Fenced", d.epoch)
        else:
            yield _put(w, d, d._replace(engine="commit_check"), f"returns from foreachBatch({d.epoch})")

    def engine_commit_check(self, w: World, d: Driver) -> Steps:
        if d.epoch in w.commits:
            yield self._stop(w, d, "ConcurrentUpdate", d.epoch)
        else:
            yield _put(w, d, d._replace(engine="commit_write"), f"sees no commits/{d.epoch}")

    def engine_commit_write(self, w: World, d: Driver) -> Steps:
        n = d.epoch
        w = w._replace(commits=w.commits | {n}, decided=w.decided | {n})
        yield self._go_to(w, d, n + 1, False, f"writes commits/{n} (the decision), goes on")

    def engine_finish(self, w: World, d: Driver) -> Steps:
        """Success is reported only when everything decided, by whomever, is settled."""
        if d.publisher == "idle" and (w.settled >= self.decided_up_to(w) or not self.has(Rule.LAST_SURVEY)):
            step = self._stop(w, d, "Success", -1)
            yield step._replace(world=self._judge_success(step.world))

    # ---------------------------------------------------------------- publisher

    def publisher_idle(self, w: World, d: Driver) -> Steps:
        n = w.settled + 1
        limit = self.decided_up_to(w)
        if not self.has(Rule.DECISION_FIRST):
            limit = max((m.epoch for m in w.manifests), default=-1)
        for epoch in range(n, limit + 1) if not self.has(Rule.IN_ORDER) else range(n, min(n, limit) + 1):
            yield _put(w, d, d._replace(publisher="fates", publishing=epoch), f"publisher sees epoch {epoch} decided")
        if w.prunes and w.pruned < w.settled:
            kept = frozenset(r for r in w.receipts if r.epoch > w.settled)
            pruned = w._replace(receipts=kept, prunes=w.prunes - 1, pruned=w.settled)
            yield _put(pruned, d, d, f"prunes receipts up to epoch {w.settled}")

    def publisher_fates(self, w: World, d: Driver) -> Steps:
        """Close every open reservation, then read the one manifest that counts (and its segments, into memory)."""
        n = d.publishing
        waiting = sorted(r for r in w.registers if r.epoch == n and r.fate == Fate.OPEN)
        if waiting and self.has(Rule.REFUSE):
            refused = w.registers - {waiting[0]} | {waiting[0]._replace(fate=Fate.REFUSED)}
            yield _put(w._replace(registers=refused), d, d, f"publisher creates fate {n}.{waiting[0].takeover} = refused")
            return
        m = self.valid_manifest(w, n)
        if n <= w.settled and self.has(Rule.SETTLED_LAST if m else Rule.LOOK_AGAIN):
            yield _put(w, d, _idle(d), f"publisher looks again: epoch {n} is settled")
        elif m is not None:
            yield _put(w, d, d._replace(publisher="publish_txn", manifest=m), f"publisher reads {n}.{m.takeover}")
        else:
            yield self._stop(w, d, "EpochLost", n)

    def publisher_publish_txn(self, w: World, d: Driver) -> Steps:
        """COMMIT PREPARED; its receipt was written inside it and is keyed by the transaction's full name."""
        n, m, after = d.publishing, d.manifest, d._replace(publisher="publish_wal")
        assert m is not None
        named = {s for s in w.staged if s.slot == Slot.TXN and s.epoch == n}
        if self.has(Rule.NAMED_ONLY):
            named = {s for s in named if _names(m, s)}
        if named:
            for s in sorted(named):
                w = _show(w, s, receipt=self.has(Rule.RECEIPT))
            yield _put(w._replace(staged=w.staged - named), d, after, f"publisher commits {_names_of(named)}")
            return
        receipt = any(r.slot == Slot.TXN and (r.epoch, r.run) == (n, m.run) for r in w.receipts)
        if n in self.bounds.empty or receipt or (n <= w.pruned and self.has(Rule.PRUNE_MARK)):
            yield _put(w, d, after, f"publisher finds the transaction of epoch {n} committed")
        else:
            lost = w._replace(broken=f"the transaction of decided epoch {n} is gone and has no receipt")
            yield _put(lost, d, after, f"publisher finds no transaction of epoch {n}")

    def publisher_publish_wal(self, w: World, d: Driver) -> Steps:
        """One target transaction: watermark, receipt (unique by epoch and slot), rows."""
        n, m, after = d.publishing, d.manifest, d._replace(publisher="settle")
        assert m is not None
        receipt = any(r.slot == Slot.WAL and r.epoch == n for r in w.receipts)
        if n in self.bounds.empty or receipt or (n <= w.pruned and self.has(Rule.PRUNE_MARK)):
            yield _put(w, d, after, f"publisher finds the segment of epoch {n} published")
        else:
            segment = Staged(Slot.WAL, n, m.takeover, m.run, 0)
            w = _show(w, segment, receipt=self.has(Rule.RECEIPT))
            yield _put(w, d, after, f"publisher sends {_names_of({segment})}")

    def publisher_settle(self, w: World, d: Driver) -> Steps:
        after = d._replace(publisher="clean")
        if not self.has(Rule.MARKER_FIRST) and any(m.epoch == d.publishing for m in w.manifests):
            yield _put(_clean(w, d.publishing), d, d, f"publisher removes the files of epoch {d.publishing}")
        else:
            settled = w._replace(settled=max(w.settled, d.publishing))
            yield _put(settled, d, after, f"publisher settles epoch {d.publishing}")

    def publisher_clean(self, w: World, d: Driver) -> Steps:
        yield _put(_clean(w, d.publishing), d, _idle(d), f"publisher removes the files of epoch {d.publishing}")

    # ---------------------------------------------------------------- reaper

    def reaper_idle(self, w: World, d: Driver) -> Steps:
        """List. Each transaction found is judged alone, so following one of them at a time loses nothing."""
        following = "log" if self.has(Rule.REAP_ORDER) else "manifest"
        for s in sorted(w.staged) if w.reaps else ():
            listed = w._replace(reaps=w.reaps - 1)
            yield _put(listed, d, d._replace(reaper=following, suspect=s), f"reaper lists {_names_of({s})}")

    def reaper_log(self, w: World, d: Driver) -> Steps:
        assert d.suspect is not None
        decided = d.suspect.epoch <= self.decided_up_to(w) or not self.has(Rule.REAP_DECIDED)
        following = "manifest" if self.has(Rule.REAP_ORDER) else "abort"
        yield _put(w, d, d._replace(reaper=following) if decided else _done(d), f"reaper reads the log: {decided}")

    def reaper_manifest(self, w: World, d: Driver) -> Steps:
        """The manifest is read after the log, so a decided epoch's manifest was already there to be seen."""
        assert d.suspect is not None
        m = self.valid_manifest(w, d.suspect.epoch)
        named = _names(m, d.suspect) if m else self.has(Rule.REAP_MANIFEST) and d.suspect.epoch > w.settled
        following = "abort" if self.has(Rule.REAP_ORDER) else "log"
        yield _put(w, d, _done(d) if named else d._replace(reaper=following), f"reaper reads the manifest: {named}")

    def reaper_abort(self, w: World, d: Driver) -> Steps:
        assert d.suspect is not None
        yield _put(w._replace(staged=w.staged - {d.suspect}), d, _done(d), f"reaper aborts {_names_of({d.suspect})}")

    # ---------------------------------------------------------------- adversary

    def adversary(self, w: World) -> Steps:
        down = all(not d.run for d in w.drivers)
        if Driver() in w.drivers and (w.runs > 0 or (w.runs == 0 and down)):
            run = self.bounds.runs - w.runs + 1
            yield _put(w._replace(runs=w.runs - 1), Driver(), Driver(run, "survey"), f"run {run} starts")
        for d in w.drivers:
            if d.run and w.crashes and w.runs >= 0:
                yield _put(w._replace(crashes=w.crashes - 1), d, Driver(), f"run {d.run} crashes")
        for s in sorted(w.late):
            both = {s, s._replace(slot=Slot.WAL)}
            arrived = w._replace(late=w.late - {s}, staged=w.staged | both)
            yield Step(f"zombie task writes {_names_of(both)}", arrived)
        if w.forgets and w.commits and (down or self.bounds.forget_while_running):
            n = max(w.commits)
            yield Step(f"commits/{n} is forgotten", w._replace(commits=w.commits - {n}, forgets=w.forgets - 1))
        if w.rollbacks and down and w.offsets >= 0:
            yield Step("the checkpoint is replaced by an older one", w._replace(
                offsets=-1, commits=frozenset(), manifests=frozenset(), registers=frozenset(), settled=-1,
                decided=frozenset(), life=w.life + 1, rollbacks=w.rollbacks - 1))  # fmt: skip

    # ---------------------------------------------------------------- invariants

    def _stop(self, w: World, d: Driver, why: str, n: int) -> Step:
        """A run ends by itself. Left alone it may only succeed, or name what it cannot repair."""
        excused = {"Success": True, "EpochLost": n in w.excused, "Refused": w.life > 0}
        if not excused.get(why, w.runs >= 0):
            w = w._replace(broken=f"{why} of epoch {n} without a cause")
        return _put(w, d, Driver(), f"stops: {why}" + (f" of epoch {n}" if n >= 0 else ""))

    def _judge_success(self, w: World) -> World:
        if any(d.run for d in w.drivers):
            return w
        for n in range(self.bounds.epochs):
            for slot in self.slots(n):
                if not any((r.slot, r.epoch, r.life) == (slot, n, w.life) for r in w.visible):
                    return w._replace(broken=f"success, but the {slot} of epoch {n} is not visible: silent loss")
        leaked = {s for s in w.staged if not self.reapable(w, s)}
        return w._replace(broken=f"success, but nobody will ever reap {_names_of(leaked)}") if leaked else w


def _show(w: World, s: Staged, *, receipt: bool) -> World:
    """Rows become visible, with their receipt in the same target transaction."""
    row = Row(s.slot, s.epoch, s.run, s.attempt, w.life)
    same = [r for r in w.visible if r.epoch == s.epoch]
    broken = w.broken
    if s.epoch not in w.decided:
        broken = f"epoch {s.epoch} is visible before its decision"
    elif any(r.slot == s.slot for r in same):
        broken = f"the {s.slot} of epoch {s.epoch} is visible twice"
    elif any(r.run != s.run for r in same):
        broken = f"two versions of epoch {s.epoch} are mixed"
    elif any(r.epoch > s.epoch for r in w.visible):
        broken = f"epoch {s.epoch} is visible after a later one"
    receipts = w.receipts | {row} if receipt else w.receipts
    return w._replace(visible=w.visible | {row}, receipts=receipts, broken=broken)


def _clean(w: World, n: int) -> World:
    return w._replace(
        manifests=frozenset(m for m in w.manifests if m.epoch != n),
        registers=frozenset(r for r in w.registers if r.epoch != n),
        staged=frozenset(s for s in w.staged if s.slot != Slot.WAL or s.epoch != n),
    )


def _put(w: World, before: Driver, after: Driver, label: str) -> Step:
    """Replace one driver. Drivers are interchangeable, so they are kept sorted: half the states for two of them."""
    drivers = list(w.drivers)
    drivers[drivers.index(before)] = after
    drivers.sort(key=lambda d: d.run)
    return Step(f"run {before.run} {label}" if before.run else label, w._replace(drivers=tuple(drivers)))


def _names(m: Manifest, s: Staged) -> bool:
    return (s.epoch, s.takeover, s.run, s.attempt) == (m.epoch, m.takeover, m.run, 0)


def _names_of(staged: set[Staged]) -> str:
    return ", ".join(f"{s.slot} {s.epoch}.{s.takeover}/run{s.run}/{s.attempt}" for s in sorted(staged)) or "nothing"


def _idle(d: Driver) -> Driver:
    return d._replace(publisher="idle", publishing=-1, manifest=None)


def _done(d: Driver) -> Driver:
    return d._replace(reaper="idle", suspect=None)


Action = Callable[[Protocol, World, Driver], Steps]


def _actions(prefix: str) -> dict[str, Action]:
    return {name.removeprefix(prefix): step for name, step in vars(Protocol).items() if name.startswith(prefix)}


ENGINE = _actions("engine_")
PUBLISHER = _actions("publisher_")
REAPER = _actions("reaper_")
