"""The engine: recovery, then Spark's loop with our `foreachBatch` in it."""

from .invariants import after_decision, after_last_look, after_success
from .reading import Reading, Steps
from .rules import Rule
from .world import Driver, Fate, Manifest, Register, Slot, Staged, Step, World, adopts, called, put


class Engine(Reading):
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
