"""What may go wrong, at any moment, within the bounds."""

from collections.abc import Iterator

from .invariants import after_crash
from .world import Bounds, Driver, Slot, Step, World, called, put


def faults(bounds: Bounds, w: World) -> Iterator[Step]:
    yield from start(bounds, w)
    yield from crash(w)
    yield from late_write(w)
    down = not any(d.run for d in w.drivers)
    if down or bounds.forget_while_running:
        yield from forget_a_decision(w)
    if down:
        yield from forget_a_barrier(w)
        yield from replace_the_checkpoint(w)


def start(bounds: Bounds, w: World) -> Iterator[Step]:
    """Start another run, too early or not. The last one of all starts alone, and nothing disturbs it."""
    alone = not any(d.run for d in w.drivers)
    if Driver() in w.drivers and (alone or (w.runs > 0 and w.offsets >= bounds.rivals_need)) and w.runs >= 0:
        run = bounds.runs - w.runs + 1
        yield put(w._replace(runs=w.runs - 1), Driver(), Driver(run, "survey"), f"run {run} starts")


def crash(w: World) -> Iterator[Step]:
    for d in w.drivers:
        if d.run and w.crashes and w.runs >= 0:
            yield put(after_crash(w._replace(crashes=w.crashes - 1), d), d, Driver(), "crashes")


def late_write(w: World) -> Iterator[Step]:
    """A task attempt that its run lost sight of stages both slots, perhaps long after that run died."""
    for s in sorted(w.late):
        both = {s, s._replace(slot=Slot.WAL)}
        arrived = w._replace(late=w.late - {s}, staged=w.staged | both)
        yield Step(f"zombie task writes {called(both)}", arrived)


def forget_a_decision(w: World) -> Iterator[Step]:
    """Power loss, or someone deletes the file. offsets/N+1 may be there or not."""
    if w.forgets and w.commits:
        n = max(w.commits)
        yield Step(f"commits/{n} is forgotten", w._replace(commits=w.commits - {n}, forgets=w.forgets - 1))


def forget_a_barrier(w: World) -> Iterator[Step]:
    """Spark syncs neither log, and we sync our files: they may outlive offsets/N. The next N is another epoch."""
    n = w.offsets
    if w.unlogs and n > max(w.commits, default=-1):
        prints = tuple(p + (epoch == n) for epoch, p in enumerate(w.fingerprints))
        after = w._replace(offsets=n - 1, fingerprints=prints, decided=w.decided - {n}, unlogs=w.unlogs - 1)
        yield Step(f"offsets/{n} is forgotten", after)


def replace_the_checkpoint(w: World) -> Iterator[Step]:
    """An old copy of the directory comes back. The target knows more than it does."""
    if w.rollbacks and w.offsets >= 0:
        after = w._replace(
            offsets=-1,
            commits=frozenset(),
            manifests=frozenset(),
            registers=frozenset(),
            settled=-1,
            decided=frozenset(),
            fingerprints=tuple(p + 1 for p in w.fingerprints),
            rollbacks=w.rollbacks - 1,
        )
        yield Step("the checkpoint is replaced by an older one", after)
