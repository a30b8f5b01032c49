"""The longest test modules first, shared out among the workers: else the last of them runs alone at the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pytest

# Seconds on two quiet cores, of the modules that take longest.
LONGEST = {
    "test_sigkill": 240,
    "test_kafka_source": 180,
    "test_demo": 140,
    "test_kafka_crash_sweep": 120,
    "test_servers_away": 110,
    "test_restart": 110,
    "test_kafka_sigkill": 105,
    "test_run_command": 100,
    "test_simulation": 90,
    "test_mysql_crash_sweep": 90,
    "test_docs": 90,
    "test_mysql_8": 90,
    "test_servers_sigkill": 85,
    "test_verify": 80,
    "test_checkpointing": 80,
    "test_small_epochs_with_state": 75,
    "test_guarantee_changes": 75,
    "test_crash_sweep": 70,
    "test_kafka_lost_replies": 70,
    "test_lost_reply": 70,
    "test_kafka_faults": 65,
    "test_commands": 60,
    "test_exit_commands": 60,
    "test_one_run": 60,
    "test_limits": 60,
    "test_other_hosts": 55,
    "test_cluster": 55,
    "test_example": 55,
    "test_api": 50,
    "test_redis_crash_sweep": 40,
}


def ordered(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """So that each worker, beginning with an equal share of the list, has an equal share of the long ones."""
    modules = [list(found) for _, found in groupby(items, lambda item: item.path)]
    long = [found for found in modules if found[0].path.stem in LONGEST]
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for found in sorted(long, key=lambda found: -LONGEST[found[0].path.stem]):
        least = loads.index(min(loads))
        shares[least] += found
        loads[least] += LONGEST[found[0].path.stem]
    short = [item for found in modules if found[0].path.stem not in LONGEST for item in found]
    left = len(items)
    for number, share in enumerate(shares):
        room = max(0, left // (workers - number) - len(share))
        share += short[:room]
        short = short[room:]
        left -= len(share)
    return [item for share in shares for item in share] + short
