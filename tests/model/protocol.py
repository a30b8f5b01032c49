"""The protocol of onceward as an explicit-state model: small enough to be read as its specification.

Actors
    driver     one process on the checkpoint; a life of it is a *run*. It has three threads that interleave freely:
               the engine (recovery, then Spark's loop with our `foreachBatch` in it), the publisher, the reaper.
    target     two slots an epoch, each published by its own target transaction: `TXN`, a prepared transaction
               (two-phase sink), and `WAL`, a write-ahead segment.
    adversary  crashes drivers at any step (recovery included), starts a second driver too early, delays task attempts
               until long after their run died, forgets `commits/N` or `offsets/N` while all drivers are down,
               replaces the checkpoint by an older one.

A run computes an epoch anew, so its rows are a new *version* (`rand()`): the version is the run's number.
Every function below that starts with `engine_`, `publisher_` or `reaper_` is one atomic step: one read, or one durable
write. Anything may happen between two steps. Spark checks its own logs first and writes later: two steps, unfenced.

Rules (`rules.py`) can be taken away one by one. Invariants (`invariants.py`):
    show           nothing is visible before its decision, twice, in two versions, or before an earlier epoch
    after_stop     `EpochLost` needs its excuse (decided after a taker's last look, by a driver past its own last check;
                   or the taker died before it looked), and then nothing of the epoch is visible. `Refused` needs a
                   checkpoint that was tampered with. A run that is left alone gets through: it is neither fenced nor
                   does it wait for ever
    after_success  the last run to report success leaves every epoch visible, and nothing that is never reaped

Left out: generations and forks (other names, so disjoint), torn files (refused), time-outs of the target, `rewind`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .adversary import faults
from .invariants import after_decision, after_last_look, after_stop, after_success, show
from .rules import Rule
from .world import (
    Bounds,
    Driver,
    Fate,
    Manifest,
    Register,
    Slot,
    Staged,
    Step,
    World,
    adopts,
    called,
    done,
    idle,
    names,
    put,
    swept,
)

Steps = Iterator[Step]


@dataclass(frozen=True)
class Protocol:
    bounds: Bounds
    removed: frozenset[Rule] = frozenset()

    def initial(self) -> World:
        b = self.bounds
        return World(runs=b.runs, crashes=b.crashes, delays=b.delays, forgets=b.forgets, unlogs=b.unlogs,
                     rollbacks=b.rollbacks, prunes=b.prunes, reaps=b.reaps, drivers=(Driver(),) * b.drivers,
                     fingerprints=(0,) * b.epochs)  # fmt: skip

    def has(self, rule: Rule) -> bool:
        return rule not in self.removed

    def steps(self, w: World) -> Steps:
        for d in dict.fromkeys(w.drivers):
            if d.run:
                yield from ENGINE[d.engine](self, w, d)
                yield from PUBLISHER[d.publisher](self, w, d)
                yield from REAPER[d.reaper](self, w, d)
        yield from faults(self.bounds, w)

    # ---------------------------------------------------------------- what can be read from storage and target

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

    # ---------------------------------------------------------------- engine: recovery

    def engine_survey(self, w: World, d: Driver) -> Steps:
        """Read the log. What is decided is the publisher's: wait for it. What is begun and undecided is ours."""
        n = w.settled + 1
        if n <= self.decided_up_to(w):
            return
        n = max([n, *(r.epoch + 1 for r in d.taken)])
        begun = self.has(Rule.UNLOGGED) and any(f.epoch == n for f in w.manifests | w.registers)
        if n <= w.offsets or begun:
            yield put(w, d, d._replace(engine="plan", epoch=n, takeover=0), f"surveys: epoch {n} is undecided")
        else:
            yield put(w, d, d._replace(engine="start", epoch=-1, takeover=0), "surveys: no epoch to recover")

    def engine_plan(self, w: World, d: Driver) -> Steps:
        """Read watermark and receipts, after the log: an epoch decided meanwhile shows here or at the re-read."""
        n = d.epoch
        if self.foreign(w, n):
            yield self._stop(w, d, "Refused", n)
        elif n <= w.settled:
            again = d._replace(engine="survey", epoch=-1, replayed=n)
            yield put(w, d, again, f"finds epoch {n} settled though undecided")
        elif self.proven(w, n):
            if d.publisher == "idle":
                publish = d._replace(publisher="fates", publishing=n)
                yield put(w, d, publish, f"finds receipts of undecided epoch {n}: its decision was forgotten")
        elif not self.has(Rule.TAKE_OVER):
            yield put(w, d, d._replace(engine="abort"), f"finds nothing of epoch {n}")
        else:
            yield put(w, d, d._replace(engine="reserve"), f"finds nothing of epoch {n}")

    def engine_reserve(self, w: World, d: Driver) -> Steps:
        """List the register. What is listed may be tidied away before a number is claimed."""
        n = d.epoch
        t = 1 + max((r.takeover for r in w.registers if r.epoch == n), default=0)
        if not self.has(Rule.OWN_NUMBER):
            t = max((r.takeover for r in w.registers if r.epoch == n and r.fate == Fate.OPEN), default=t)
        yield put(w, d, d._replace(engine="claim", takeover=t), f"lists the register of {n}: {t} seems free")

    def engine_claim(self, w: World, d: Driver) -> Steps:
        n, t = d.epoch, d.takeover
        if self.has(Rule.OWN_NUMBER):
            standing = {r.takeover for r in w.registers if r.epoch == n}
            while t in standing:
                t += 1
        after = d._replace(engine="reread" if self.has(Rule.REREAD) else "fate", takeover=t)
        if self.has(Rule.RESERVE):
            w = w._replace(registers=w.registers | {Register(n, t, Fate.OPEN)})
        yield put(w, d, after, f"reserves {n}.{t}")

    def engine_reread(self, w: World, d: Driver) -> Steps:
        if d.epoch <= self.decided_up_to(w):
            yield put(w, d, d._replace(engine="survey", epoch=-1, takeover=0), "reads the log again: decided")
        else:
            after = d._replace(engine="fate" if self.has(Rule.ABORT_LAST) else "abort")
            yield put(w, d, after, f"reads the log again: epoch {d.epoch} is undecided")

    def engine_fate(self, w: World, d: Driver) -> Steps:
        n, t = d.epoch, d.takeover
        if self.has(Rule.FATE_ONCE) and Register(n, t, Fate.REFUSED) in w.registers:
            yield put(w, d, d._replace(engine="survey", epoch=-1, takeover=0), f"finds {n}.{t} refused")
            return
        mine = Register(n, t, Fate.TAKEN)
        others = frozenset(r for r in w.registers if (r.epoch, r.takeover) != (n, t))
        if not self.has(Rule.TIDY_AFTER_LOOK):
            others = frozenset(r for r in others if r.epoch != n or r.takeover > t)
        w = w._replace(registers=others | {mine})
        following = "survey"
        if self.has(Rule.ABORT_LAST):
            following = "look" if self.has(Rule.ADOPT) else "abort"
        if following != "look":
            w = after_last_look(w, n, t)
        yield put(w, d, d._replace(engine=following, taken=d.taken | {mine}), f"creates fate {n}.{t} = taken")

    def engine_look(self, w: World, d: Driver) -> Steps:
        """The last look. What is decided later, by a driver past its last check, is lost: Spark's log is not fenced."""
        n, t = d.epoch, d.takeover
        if n <= self.decided_up_to(w):
            # It is not ours to run, and the lower transactions are not ours to abort.
            after = d._replace(engine="close", taken=frozenset(r for r in d.taken if r.epoch != n))
            yield put(w, d, after, f"looks once more: epoch {n} is decided")
        else:
            yield put(after_last_look(w, n, t), d, d._replace(engine="abort"), f"looks once more: {n} is undecided")

    def engine_close(self, w: World, d: Driver) -> Steps:
        """Refuse what is open below, then read the manifest that counted there."""
        n, t = d.epoch, d.takeover
        lower = sorted(r for r in w.registers if r.epoch == n and r.takeover < t)
        waiting = [r for r in lower if r.fate == Fate.OPEN]
        if waiting and self.has(Rule.ADOPT_CLOSES_LOWER):
            refused = w.registers - {waiting[0]} | {waiting[0]._replace(fate=Fate.REFUSED)}
            label = f"creates fate {n}.{waiting[0].takeover} = refused"
            yield put(w._replace(registers=refused), d, d, label)
            return
        below = max((r.takeover for r in lower if r.fate == Fate.TAKEN), default=0)
        m = next((m for m in w.manifests if (m.epoch, m.takeover) == (n, below)), None)
        if m is not None:
            yield put(w, d, d._replace(engine="adopt", adopting=m), f"reads {n}.{below}, to adopt it")
        elif not (self.has(Rule.ADOPT_WAITS) and any(adopts(x, n, below) for x in w.drivers)):
            yield put(w, d, d._replace(engine="survey", epoch=-1, takeover=0), f"finds no {n}.{below} to adopt")

    def engine_adopt(self, w: World, d: Driver) -> Steps:
        """Nobody else writes this number, so the copy meets no other one."""
        assert d.adopting is not None
        n, t = d.epoch, d.takeover
        w = w._replace(manifests=w.manifests | {d.adopting._replace(takeover=t)})
        after = d._replace(engine="survey", epoch=-1, takeover=0, adopting=None)
        yield put(w, d, after, f"adopts {n}.{d.adopting.takeover} as {n}.{t}")

    def engine_abort(self, w: World, d: Driver) -> Steps:
        n, t = d.epoch, d.takeover
        every = not (self.has(Rule.ABORT_LOWER) and self.has(Rule.TAKE_OVER))
        gone = {s for s in w.staged if s.epoch == n and (s.takeover < t or every)}
        following = "tidy" if self.has(Rule.TAKE_OVER) else "start"
        after = d._replace(engine=following if self.has(Rule.ABORT_LAST) else "fate")
        yield put(w._replace(staged=w.staged - gone), d, after, f"aborts {called(gone)}")

    def engine_tidy(self, w: World, d: Driver) -> Steps:
        """Below a takeover that stands everything is void, and goes file by file; the newest void manifest stays."""
        n, t = d.epoch, d.takeover
        tried = max((m.takeover for m in w.manifests if m.epoch == n and m.takeover < t), default=0)
        manifests = sorted(m for m in w.manifests if m.epoch == n and m.takeover < tried)
        registers = sorted(r for r in w.registers if r.epoch == n and r.takeover < t)
        if manifests:
            gone = w._replace(manifests=w.manifests - {manifests[0]})
            yield put(gone, d, d, f"removes manifest {n}.{manifests[0].takeover}, which is void")
        elif registers:
            gone = w._replace(registers=w.registers - {registers[0]})
            yield put(gone, d, d, f"removes {n}.{registers[0].takeover} ({registers[0].fate}), which is void")
        else:
            yield put(w, d, d._replace(engine="survey"), f"has tidied up below {n}.{t}")

    # ---------------------------------------------------------------- engine: Spark's loop

    def engine_start(self, w: World, d: Driver) -> Steps:
        """Spark resumes at its highest offsets entry, or past it if the commit log ends there too."""
        yield put(w, d, d._replace(engine="resume", latest=w.offsets), f"Spark finds offsets/{w.offsets}")

    def engine_resume(self, w: World, d: Driver) -> Steps:
        again = d.latest != max(w.commits, default=-1)
        n = d.latest if again else d.latest + 1
        yield self._go_to(w, d, n, again, "Spark resumes")

    def _go_to(self, w: World, d: Driver, n: int, again: bool, why: str) -> Step:
        if n >= self.bounds.epochs:
            after = d._replace(engine="finish", latest=-1, epoch=-1, takeover=0)
            return put(w, d, after, f"{why}: no data left")
        t = next((r.takeover for r in d.taken if r.epoch == n), 0)
        after = d._replace(engine="enter" if again else "offset_check", latest=-1, epoch=n, takeover=t)
        return put(w, d, after, f"{why} at epoch {n}")

    def engine_offset_check(self, w: World, d: Driver) -> Steps:
        if d.epoch <= w.offsets:
            yield self._stop(w, d, "ConcurrentUpdate", d.epoch)
        else:
            yield put(w, d, d._replace(engine="offset_write"), f"sees no offsets/{d.epoch}")

    def engine_offset_write(self, w: World, d: Driver) -> Steps:
        w = w._replace(offsets=max(w.offsets, d.epoch))
        yield put(w, d, d._replace(engine="enter"), f"writes offsets/{d.epoch}")

    def engine_enter(self, w: World, d: Driver) -> Steps:
        """foreachBatch begins. Until a first epoch is staged it looks again before it trusts what recovery planned."""
        n = d.epoch
        survey = self.has(Rule.FIRST_SURVEY) and not d.surveyed
        d2 = d._replace(surveyed=True)
        published = self.has(Rule.EMPTY_PASS) and (d.replayed == n or (survey and self.proven(w, n)))
        if survey and self.foreign(w, n):
            yield self._stop(w, d, "Refused", n)
        elif published:
            after = (d if self.has(Rule.SURVEY_ON) else d2)._replace(engine="commit_check")
            yield put(w, d, after, f"consumes epoch {n}, published already")
        elif survey and n <= self.decided_up_to(w):
            yield self._stop(w, d, "Fenced", n)
        else:
            yield put(w, d, d2._replace(engine="stage"), f"enters foreachBatch({n})")

    def engine_stage(self, w: World, d: Driver) -> Steps:
        """The winning attempts stage every slot. Any other attempt may write now, much later, or never."""
        n, t, run = d.epoch, d.takeover, d.run
        if n in self.bounds.empty and not self.has(Rule.EMPTY_MANIFEST):
            yield put(w, d, d._replace(engine="commit_check"), f"stages nothing for epoch {n}")
            return
        staged = w.staged | {Staged(s, n, t, run, 0) for s in self.bounds.slots(n)}
        after = d._replace(engine="check_before" if self.has(Rule.CHECK_BEFORE) else "manifest")
        yield put(w._replace(staged=staged), d, after, f"stages epoch {n} as {n}.{t}")
        straggler = Staged(Slot.TXN, n, t, run, 1)
        if w.delays and straggler not in w.late | w.staged:
            lost = w._replace(late=w.late | {straggler}, delays=w.delays - 1)
            yield put(lost, d, d, f"loses sight of a task attempt at epoch {n}")

    def engine_check_before(self, w: World, d: Driver) -> Steps:
        if self.overtaken(w, d):
            yield self._stop(w, d, "Fenced", d.epoch)
        else:
            yield put(w, d, d._replace(engine="manifest"), f"sees no takeover above {d.epoch}.{d.takeover}")

    def engine_manifest(self, w: World, d: Driver) -> Steps:
        n, t = d.epoch, d.takeover
        there = {m for m in w.manifests if (m.epoch, m.takeover) == (n, t)}
        if there and self.has(Rule.MANIFEST_ONCE):
            yield self._stop(w, d, "Fenced", n)
            return
        w = w._replace(manifests=w.manifests - there | {Manifest(n, t, d.run, t)})
        yield put(w, d, d._replace(engine="check_after"), f"writes manifest {n}.{t}")

    def engine_check_after(self, w: World, d: Driver) -> Steps:
        if self.has(Rule.CHECK_AFTER) and self.overtaken(w, d):
            yield self._stop(w, d, "Fenced", d.epoch)
        else:
            yield put(w, d, d._replace(engine="commit_check"), f"returns from foreachBatch({d.epoch})")

    def engine_commit_check(self, w: World, d: Driver) -> Steps:
        if d.epoch in w.commits:
            yield self._stop(w, d, "ConcurrentUpdate", d.epoch)
        else:
            yield put(w, d, d._replace(engine="commit_write"), f"sees no commits/{d.epoch}")

    def engine_commit_write(self, w: World, d: Driver) -> Steps:
        n = d.epoch
        w = after_decision(w._replace(commits=w.commits | {n}, decided=w.decided | {n}), d)
        yield self._go_to(w, d, n + 1, False, f"writes commits/{n} (the decision), goes on")

    def engine_finish(self, w: World, d: Driver) -> Steps:
        """Success is reported only when everything decided, by whomever, is settled."""
        if d.publisher == "idle" and (w.settled >= self.decided_up_to(w) or not self.has(Rule.LAST_SURVEY)):
            step = self._stop(w, d, "Success", -1)
            leaked = {s for s in w.staged if not self.reapable(w, s)}
            yield step._replace(world=after_success(step.world, self.bounds, leaked))

    # ---------------------------------------------------------------- publisher

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

    # ---------------------------------------------------------------- reaper

    def reaper_idle(self, w: World, d: Driver) -> Steps:
        """List. Each transaction found is judged alone, so following one of them at a time loses nothing."""
        following = "log" if self.has(Rule.REAP_ORDER) else "manifest"
        for s in sorted(w.staged) if w.reaps else ():
            listed = w._replace(reaps=w.reaps - 1)
            yield put(listed, d, d._replace(reaper=following, suspect=s), f"reaper lists {called({s})}")

    def reaper_log(self, w: World, d: Driver) -> Steps:
        assert d.suspect is not None
        decided = d.suspect.epoch <= self.decided_up_to(w) or not self.has(Rule.REAP_DECIDED)
        following = "manifest" if self.has(Rule.REAP_ORDER) else "abort"
        yield put(w, d, d._replace(reaper=following) if decided else done(d), f"reaper reads the log: {decided}")

    def reaper_manifest(self, w: World, d: Driver) -> Steps:
        """The manifest is read after the log, so a decided epoch's manifest was already there to be seen."""
        assert d.suspect is not None
        m = self.valid_manifest(w, d.suspect.epoch)
        named = names(m, d.suspect) if m else self.has(Rule.REAP_MANIFEST) and d.suspect.epoch > w.settled
        following = "abort" if self.has(Rule.REAP_ORDER) else "log"
        yield put(w, d, done(d) if named else d._replace(reaper=following), f"reaper reads the manifest: {named}")

    def reaper_abort(self, w: World, d: Driver) -> Steps:
        assert d.suspect is not None
        yield put(w._replace(staged=w.staged - {d.suspect}), d, done(d), f"reaper aborts {called({d.suspect})}")

    # ---------------------------------------------------------------- the end of a run

    def _stop(self, w: World, d: Driver, why: str, n: int) -> Step:
        label = f"stops: {why}" + (f" of epoch {n}" if n >= 0 else "")
        return put(after_stop(w, why, n), d, Driver(), label)


Action = Callable[[Protocol, World, Driver], Steps]


def _actions(prefix: str) -> dict[str, Action]:
    return {name.removeprefix(prefix): step for name, step in vars(Protocol).items() if name.startswith(prefix)}


ENGINE = _actions("engine_")
PUBLISHER = _actions("publisher_")
REAPER = _actions("reaper_")
