"""The reaper: each transaction that is found is judged, and aborted if nobody will ever publish it."""

from .reading import Reading, Steps
from .rules import Rule
from .world import Driver, World, called, done, names, put


class Reaper(Reading):
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
