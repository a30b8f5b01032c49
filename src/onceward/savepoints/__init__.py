"""*Settle*, kept for later: a sealed copy of a checkpoint after a published epoch, taken and restored without Spark."""

from onceward.savepoints.background import SavepointTask, SavepointTasks
from onceward.savepoints.check import Listed, list_savepoints, read_savepoint, verify_savepoint
from onceward.savepoints.consequences import Consequence, consequences
from onceward.savepoints.dispose import dispose
from onceward.savepoints.document import Savepoint
from onceward.savepoints.progress import Progress
from onceward.savepoints.restore import RestoredCheckpoint, restore_savepoint
from onceward.savepoints.take import Taken, take

__all__ = [
    "Consequence",
    "Listed",
    "Progress",
    "RestoredCheckpoint",
    "Savepoint",
    "SavepointTask",
    "SavepointTasks",
    "Taken",
    "consequences",
    "dispose",
    "list_savepoints",
    "read_savepoint",
    "restore_savepoint",
    "take",
    "verify_savepoint",
]
