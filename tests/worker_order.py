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
    "test_sigkill": 150,
    "test_kafka_crash_sweep": 150,
    "test_restart": 120,
    "test_dashboard": 110,
    "test_crash_sweep": 100,
    "test_kafka_source": 90,
    "test_docs": 90,
    "test_run_command": 80,
    "test_mysql_crash_sweep": 80,
    "test_verify": 80,
    "test_savepoints_live": 80,
    "test_cluster": 80,
    "test_state": 80,
    "test_kafka_faults": 75,
    "test_upgrades": 70,
    "test_other_hosts": 70,
    "test_servers_away": 70,
    "test_protocol_model": 70,
    "test_kafka_lost_replies": 70,
    "test_kafka_sigkill": 60,
    "test_mysql_8": 60,
    "test_small_epochs_with_state": 60,
    "test_example": 55,
    "test_savepoint_forks": 50,
    "test_savepoints": 50,
    "test_demo": 50,
    "test_one_run": 50,
    "test_simulation": 50,
    "test_servers_sigkill": 45,
    "test_kafka_security": 45,
    "test_redis_crash_sweep": 45,
    "test_lost_reply": 40,
    "test_controls": 40,
    "test_facade": 40,
    "test_limits": 35,
    "test_guarantee_changes": 30,
    "test_stop_in_every_phase": 35,
    "test_kafka_fencing": 35,
    "test_mysql_lost_replies": 30,
    "test_redis_cluster": 30,
    "test_checkpoints": 30,
    "test_power_loss": 30,
    "test_simulation_has_teeth": 30,
    "test_broken_sinks": 30,
    "test_api": 30,
    "test_checkpointing": 30,
    "test_any_table": 25,
    "test_disk_faults": 25,
    "test_mysql_values": 25,
    "test_redis_lost_replies": 25,
    "test_operators": 20,
    "test_savepoint_rollback": 20,
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
