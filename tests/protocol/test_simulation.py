"""Seeded histories of everything that can go wrong, on the real protocol.

Crashes, lost replies, delayed and repeated commits, zombie writers, lost attempts, torn segments, broken disks,
forgotten decisions, clocks that jump, and two or three drivers interleaved operation by operation: scenarios 5, 6, 8,
12, 16, 17, 19, 26 to 30, 33, 40, 41, 50, 60 and 67 of docs/scenarios.md, mixed.

`ONCEWARD_SEED=123 pytest tests/protocol/test_simulation.py -k replay` plays one of them again and prints its trace.
"""

import multiprocessing
import os
from collections import Counter

import pytest

from onceward.testing.simulate import Simulation, Story, Violation, simulate

SCHEDULES = 2_000
SOAK = 1_000_000
PARTS = 4
SLICE = 5_000


def play(seeds: range) -> Counter[str]:
    """All of them; the first that breaks a promise is raised with its seed and trace."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        story: Story = simulate(seed)
        counts["schedules"] += 1
        counts["lives"] += story.lives
        counts["with two or three drivers"] += story.two_drivers
        counts["rewound after an excused EpochLost"] += story.excused
        counts["refused after an overwritten barrier"] += story.refused
        counts.update(type(ending).__name__.lower() for ending in story.endings)
    return counts


@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_loses_or_duplicates(part: int, record_sweep: list[str]) -> None:
    size = SCHEDULES // PARTS
    counts = play(range(part * size, (part + 1) * size))
    assert counts["schedules"] == size
    # The histories must be eventful, or they prove nothing.
    assert counts["crashed"] > size / 4
    assert counts["with two or three drivers"] > size / 5
    record_sweep.append("simulation: " + ", ".join(f"{name} {count}" for name, count in counts.items()))


def play_on(seeds: range) -> Counter[str]:
    """All of them, whatever happens: a seed that breaks a promise is counted under its name."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts += play(range(seed, seed + 1))
        except Violation as violation:
            counts[str(violation).partition("\n")[0]] += 1
    return counts


@pytest.mark.soak
def test_a_million_schedules(record_sweep: list[str]) -> None:
    """On all cores; about two hours of processor time. Seeds that fail are named at the end."""
    slices = [range(start, start + SLICE) for start in range(SCHEDULES, SCHEDULES + SOAK, SLICE)]
    with multiprocessing.get_context("spawn").Pool() as pool:
        counts = sum(pool.imap_unordered(play_on, slices), Counter[str]())
    failed = [name for name in counts if name.startswith("seed ")]
    assert not failed, "\n".join(failed)
    assert counts["schedules"] == SOAK
    record_sweep.append("soak: " + ", ".join(f"{name} {count}" for name, count in counts.items()))


@pytest.mark.skipif("ONCEWARD_SEED" not in os.environ, reason="replays the seed in ONCEWARD_SEED")
def test_replay_of_one_seed() -> None:
    simulation = Simulation(int(os.environ["ONCEWARD_SEED"]))
    try:
        simulation.run()
    finally:
        print("\n".join(simulation.harness.trace))


def test_a_seed_plays_the_same_history_twice() -> None:
    def shape(seed: int) -> list[str]:
        simulation = Simulation(seed)
        simulation.run()
        return [" ".join(word for word in line.split() if "ow1_" not in word) for line in simulation.harness.trace]

    for seed in range(20):
        assert shape(seed) == shape(seed)
