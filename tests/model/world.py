"""The values of the model: what lies in storage and target, where each driver stands, what is left to go wrong."""

from enum import StrEnum
from typing import NamedTuple


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
    """Names attempt 0 of every slot of `run`, staged as `staged`; lies at `manifests/<epoch>.<takeover>`."""

    epoch: int
    takeover: int
    run: int
    staged: int  # the takeover number in the names of its transactions: a lower one if it was adopted


class Register(NamedTuple):
    """`<epoch>.<takeover>.reserved` together with its `.fate`."""

    epoch: int
    takeover: int
    fate: Fate


class Row(NamedTuple):
    """A slot's rows in the target, and (while not pruned) their receipt. The fingerprint is of `offsets/<epoch>`."""

    slot: Slot
    epoch: int
    run: int
    attempt: int
    fingerprint: int


class Driver(NamedTuple):
    run: int = 0  # 0: down
    engine: str = ""
    epoch: int = -1
    takeover: int = 0
    taken: frozenset[Register] = frozenset()  # what recovery took over; kept for the whole run
    latest: int = -1  # the highest offsets entry that Spark read when it started
    surveyed: bool = False  # an epoch has been staged: foreachBatch no longer looks again
    replayed: int = -1  # the epoch that recovery found published though undecided
    adopting: Manifest | None = None  # the manifest that counted below `takeover`, read and not copied yet
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
    # The sources: what offsets/N holds, or will hold when Spark writes it. It changes when an entry is lost.
    fingerprints: tuple[int, ...] = ()
    # The adversary: attempts yet to write, and what is left of each budget.
    late: frozenset[Staged] = frozenset()
    runs: int = 0
    crashes: int = 0
    delays: int = 0
    forgets: int = 0
    unlogs: int = 0
    rollbacks: int = 0
    prunes: int = 0
    reaps: int = 0
    # Ghosts, read by invariants only: epochs ever decided, (epoch, run) that were past their own last check when a
    # taker looked for the last time, epochs whose EpochLost is excused, what went wrong.
    decided: frozenset[int] = frozenset()
    zombies: frozenset[tuple[int, int]] = frozenset()
    excused: frozenset[int] = frozenset()
    broken: str = ""
    drivers: tuple[Driver, ...] = ()


class Step(NamedTuple):
    label: str
    world: World


class Bounds(NamedTuple):
    """How much the adversary may do. `runs` counts starts; one more, undisturbed, is allowed when all are down."""

    epochs: int = 2
    drivers: int = 2
    runs: int = 2
    crashes: int = 1
    delays: int = 0
    forgets: int = 0
    unlogs: int = 0
    rollbacks: int = 0
    prunes: int = 0
    reaps: int = 0
    empty: frozenset[int] = frozenset()
    forget_while_running: bool = False
    rivals_need: int = -1  # a run starts beside a living one only once this offsets entry is there

    def slots(self, n: int) -> tuple[Slot, ...]:
        return () if n in self.empty else (Slot.TXN, Slot.WAL)


def swept(w: World, n: int) -> World:
    return w._replace(
        manifests=frozenset(m for m in w.manifests if m.epoch != n),
        registers=frozenset(r for r in w.registers if r.epoch != n),
        staged=frozenset(s for s in w.staged if s.slot != Slot.WAL or s.epoch != n),
    )


def put(w: World, before: Driver, after: Driver, label: str) -> Step:
    """Replace one driver. Drivers are interchangeable, so they are kept sorted: half the states for two of them."""
    drivers = list(w.drivers)
    drivers[drivers.index(before)] = after
    drivers.sort(key=lambda d: d.run)
    return Step(f"run {before.run} {label}" if before.run else label, w._replace(drivers=tuple(drivers)))


def adopts(d: Driver, n: int, t: int) -> bool:
    """The driver has taken n over as t, and has not looked yet whether it was decided, or is copying what was."""
    return (d.epoch, d.takeover) == (n, t) and d.engine in ("look", "close", "adopt")


def names(m: Manifest, s: Staged) -> bool:
    return (s.epoch, s.takeover, s.run, s.attempt) == (m.epoch, m.staged, m.run, 0)


def called(staged: set[Staged]) -> str:
    return ", ".join(f"{s.slot} {s.epoch}.{s.takeover}/run{s.run}/{s.attempt}" for s in sorted(staged)) or "nothing"


def idle(d: Driver) -> Driver:
    return d._replace(publisher="idle", publishing=-1, manifest=None)


def done(d: Driver) -> Driver:
    return d._replace(reaper="idle", suspect=None)
