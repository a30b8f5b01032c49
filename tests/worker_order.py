"""The longest test modules first, whole, and each to a worker that has their servers already.

Shared out by number, as pytest-xdist does it by itself, the last of the long ones would run alone at the end; and every
worker would start every server, and a Spark of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# Seconds on two quiet cores, of the modules that take longest.
LONGEST = {
    "test_sigkill": 240,
    "test_kafka_crash_sweep": 150,
    "test_restart": 140,
    "test_dashboard": 110,
    "test_run_command": 100,
    "test_kafka_sigkill": 90,
    "test_simulation": 90,
    "test_mysql_crash_sweep": 90,
    "test_docs": 90,
    "test_mysql_8": 90,
    "test_checkpointing": 80,
    "test_savepoints_live": 70,
    "test_verify": 70,
    "test_kafka_source": 70,
    "test_servers_away": 70,
    "test_crash_sweep": 70,
    "test_kafka_lost_replies": 70,
    "test_lost_reply": 70,
    "test_kafka_faults": 65,
    "test_small_epochs_with_state": 60,
    "test_savepoint_forks": 60,
    "test_savepoints": 60,
    "test_demo": 60,
    "test_one_run": 60,
    "test_upgrades": 60,
    "test_limits": 60,
    "test_other_hosts": 55,
    "test_cluster": 55,
    "test_example": 55,
    "test_servers_sigkill": 50,
    "test_api": 50,
    "test_state": 50,
    "test_redis_crash_sweep": 40,
    "test_savepoint_rollback": 40,
    "test_stop_in_every_phase": 40,
    "test_operators": 40,
    "test_power_loss": 35,
    "test_guarantee_changes": 30,
    "test_controls": 30,
}
ANY_OTHER = 5


def seconds(module: str) -> int:
    """How long it takes, or about that."""
    return LONGEST.get(PurePath(module).stem, ANY_OTHER)


def ordered(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The longest modules first; those of one module stay together."""
    return sorted(items, key=lambda item: -seconds(item.path.name))


def chosen(waiting: Sequence[str], begun: Iterable[str]) -> str:
    """Which of the modules that wait, the longest first, is for the worker that has begun these.

    One of the same folder needs the same servers. But nothing long is put off for that: it would run alone at the end.
    """
    folders = {PurePath(module).parent for module in begun}
    near = next((module for module in waiting if PurePath(module).parent in folders), waiting[0])
    return near if 2 * seconds(near) >= seconds(waiting[0]) else waiting[0]


class WholeModules(LoadFileScheduling):
    """Gives a worker another module when it has nearly done those it has."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        module = chosen(list(self.workqueue), self.assigned_work[node])
        self.workqueue.move_to_end(module, last=False)
        super()._assign_work_unit(node)

    def schedule(self) -> None:
        """In the order of `ordered`, not by the number of tests."""
        self.config.option.loadscopereorder = False
        super().schedule()
