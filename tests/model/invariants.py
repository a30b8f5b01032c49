"""What must never happen. Each function hands back the world, with `broken` set if it has just happened."""

from .world import Bounds, Driver, Row, Staged, World, adopts, called


def show(w: World, s: Staged, *, receipt: bool) -> World:
    """Rows become visible, with their receipt: after the decision, once, of one version, and in order."""
    row = Row(s.slot, s.epoch, s.run, s.attempt, w.fingerprints[s.epoch])
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


def after_last_look(w: World, n: int, t: int) -> World:
    """A taker looks for the last time and sees n undecided. A driver past its own last check can still decide it."""
    past = {(n, x.run) for x in w.drivers if x.epoch == n and x.takeover < t and x.engine.startswith("commit_")}
    return w._replace(zombies=w.zombies | past)


def after_decision(w: World, d: Driver) -> World:
    """The one excuse for EpochLost: it was decided by such a driver, which Spark's log does not fence."""
    return w._replace(excused=w.excused | {d.epoch}) if (d.epoch, d.run) in w.zombies else w


def after_crash(w: World, d: Driver) -> World:
    """A taker that dies between `taken` and the copy looks no more, and nobody can tell that it aborted nothing."""
    n, t = d.epoch, d.takeover
    if not adopts(d, n, t):
        return w
    return w._replace(excused=w.excused | {n}) if n in w.decided else after_last_look(w, n, t)


def after_stop(w: World, why: str, n: int) -> World:
    """A run ends by itself. EpochLost and Refused need their cause, and a run left alone gets through.

    What is lost is lost whole: then it can be rewound and computed again.
    """
    if why == "EpochLost" and any(r.epoch == n for r in w.visible):
        return w._replace(broken=f"EpochLost of epoch {n}, of which a part is visible")
    excused = {"Success": True, "EpochLost": n in w.excused, "Refused": any(w.fingerprints)}
    if excused.get(why, w.runs >= 0):
        return w
    return w._replace(broken=f"{why} of epoch {n} without a cause")


def after_success(w: World, bounds: Bounds, leaked: set[Staged]) -> World:
    """The last run on a checkpoint that reports success leaves no epoch out, and nothing that is never reaped."""
    if any(d.run for d in w.drivers):
        return w
    for n in range(bounds.epochs):
        for slot in bounds.slots(n):
            if not any((r.slot, r.epoch, r.fingerprint) == (slot, n, w.fingerprints[n]) for r in w.visible):
                return w._replace(broken=f"success, but the {slot} of epoch {n} is not visible: silent loss")
    return w._replace(broken=f"success, but nobody will ever reap {called(leaked)}") if leaked else w
