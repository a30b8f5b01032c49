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

# Seconds on two quiet cores, beside the others, of the modules that take longest.
LONGEST = {
    "test_kafka_crash_sweep": 300,
    "test_sigkill": 195,
    "test_restart": 170,
    "test_dashboard": 165,
    "test_mysql_crash_sweep": 145,
    "test_verify": 130,
    "test_crash_sweep": 130,
    "test_savepoints": 115,
    "test_one_run": 115,
    "test_docs": 100,
    "test_run_command": 90,
    "test_kafka_lost_replies": 80,
    "test_upgrades": 75,
    "test_kafka_source": 75,
    "test_kafka_faults": 75,
    "test_redis_crash_sweep": 70,
    "test_local_rows": 70,
    "test_example": 70,
    "test_cluster": 70,
    "test_simulation": 65,
    "test_savepoints_live": 65,
    "test_other_hosts": 65,
    "test_simulation_has_teeth": 60,
    "test_protocol_model": 60,
    "test_lost_reply": 60,
    "test_kafka_security": 60,
    "test_demo": 60,
    "test_checkpoints": 60,
    "test_broken_sinks": 60,
    "test_state": 55,
    "test_guarantee_changes": 55,
    "test_servers_away": 50,
    "test_redis_lost_replies": 50,
    "test_limits": 50,
    "test_facade": 50,
    "test_checkpointing": 50,
    "test_savepoint_forks": 45,
    "test_kafka_fencing": 45,
    "test_type_fidelity": 40,
    "test_small_epochs_with_state": 40,
    "test_servers_sigkill": 40,
    "test_mysql_8": 40,
    "test_kafka_random_schemas": 40,
    "test_stop_in_every_phase": 35,
    "test_savepoint_kills": 35,
    "test_redis_cluster": 35,
    "test_power_loss": 35,
    "test_mysql_lost_replies": 35,
    "test_engine_written": 35,
    "test_api": 35,
    "test_any_fault": 35,
    "test_small_epochs": 30,
    "test_redis_random_schemas": 30,
    "test_mysql_server_faults": 30,
    "test_compatible_types": 30,
    "test_disk_faults": 30,
    "test_types": 25,
    "test_api_fuzz": 25,
}
ANY_OTHER = 10


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
