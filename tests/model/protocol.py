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
Every function that starts with `engine_`, `publisher_` or `reaper_` (`engine.py`, `publisher.py`, `reaper.py`) is one
atomic step: one read, or one durable write. Anything may happen between two steps. Spark checks its own logs first and
writes later: two steps, unfenced.

Rules (`rules.py`) can be taken away one by one. Invariants (`invariants.py`):
    show           nothing is visible before its decision, twice, in two versions, or before an earlier epoch
    after_stop     `EpochLost` needs its excuse (decided after a taker's last look, by a driver past its own last check;
                   or the taker died before it looked), and then nothing of the epoch is visible. `Refused` needs a
                   checkpoint that was tampered with. A run that is left alone gets through: it is neither fenced nor
                   does it wait for ever
    after_success  the last run to report success leaves every epoch visible, and nothing that is never reaped

Left out: generations and forks (other names, so disjoint), torn files (refused), time-outs of the target, `rewind`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .adversary import faults
from .engine import Engine
from .publisher import Publisher
from .reading import Steps
from .reaper import Reaper
from .world import Driver, World


@dataclass(frozen=True)
class Protocol(Engine, Publisher, Reaper):
    def initial(self) -> World:
        b = self.bounds
        return World(runs=b.runs, crashes=b.crashes, delays=b.delays, forgets=b.forgets, unlogs=b.unlogs,
                     rollbacks=b.rollbacks, prunes=b.prunes, reaps=b.reaps, drivers=(Driver(),) * b.drivers,
                     fingerprints=(0,) * b.epochs)  # fmt: skip

    def steps(self, w: World) -> Steps:
        for d in dict.fromkeys(w.drivers):
            if d.run:
                yield from ENGINE[d.engine](self, w, d)
                yield from PUBLISHER[d.publisher](self, w, d)
                yield from REAPER[d.reaper](self, w, d)
        yield from faults(self.bounds, w)


Action = Callable[[Protocol, World, Driver], Steps]


def _actions(prefix: str) -> dict[str, Action]:
    return {name.removeprefix(prefix): getattr(Protocol, name) for name in dir(Protocol) if name.startswith(prefix)}


ENGINE = _actions("engine_")
PUBLISHER = _actions("publisher_")
REAPER = _actions("reaper_")
