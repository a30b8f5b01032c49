"""How many rows Spark itself has counted on the way, to be compared with what is found staged."""

from __future__ import annotations

import time

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, DataFrameWriter, Observation
from pyspark.sql import functions as F

_TOLD_WITHIN_S = 60.0
_LOOK_S = 0.01


class Observed:
    """A batch whose rows Spark counts as they pass, to be read once by one action.

    What is behind it must not be shuffled: only in an action's last stage does Spark count each partition once,
    whatever is tried again or twice.
    """

    def __init__(self, batch: DataFrame) -> None:
        self._observation = Observation()
        self.frame = batch.observe(self._observation, F.count(F.lit(1)).alias("rows"))

    def rows(self) -> int | None:
        """After the action has succeeded: how many they were; None when Spark does not say.

        Spark 4.3 has said so when the action returns. Should a release tell it by its listeners, it may come later, or
        never: those drop what they cannot keep up with.
        """
        counting = self._observation._jo.future()  # type: ignore[union-attr]
        deadline = time.monotonic() + _TOLD_WITHIN_S
        while not counting.isCompleted():
            if time.monotonic() > deadline:
                return None
            time.sleep(_LOOK_S)
        return int(self._observation.get["rows"])


def save_counted(
    batch: DataFrame, folder: str, *, format: str, options: dict[str, str], by: tuple[str, ...]
) -> int | None:
    """As `batch.write.save(folder)`; how many rows the tasks that count say they have written.

    By the metrics of the command, as Spark Connect runs it. To observe the rows would slow the writing by a tenth.
    """
    try:
        command = _writer(batch, format, options, by)._jwrite.saveCommand(_some(batch, folder))
    except Py4JJavaError:
        raise
    except Py4JError:
        # A release without that method.
        observed = Observed(batch)
        _writer(observed.frame, format, options, by).save(folder)
        return observed.rows()
    state = batch.sparkSession._jsparkSession.sessionState()
    execution = state.executePlan(command, getattr(state, "executePlan$default$2")())
    execution.assertCommandExecuted()
    counted = execution.commandExecuted().commandPhysicalPlan().metrics().get("numOutputRows")
    return int(counted.get().value()) if counted.isDefined() else None


def _writer(batch: DataFrame, format: str, options: dict[str, str], by: tuple[str, ...]) -> DataFrameWriter:
    writer = batch.write.format(format).options(**options)
    return writer.partitionBy(*by) if by else writer


def _some(batch: DataFrame, text: str) -> object:
    return batch.sparkSession.sparkContext._jvm.scala.Option.apply(text)  # type: ignore[union-attr]
