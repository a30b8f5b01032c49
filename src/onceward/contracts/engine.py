"""For two-phase sinks whose staged form the engine can write by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceward.contracts.context import Handle, SlotContext

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """Where the engine's own writer is to put an epoch's rows, out of every reader's sight, and how."""

    folder: str
    format: str
    options: Mapping[str, str]
    partition_by: tuple[str, ...]


class EngineWritten(ABC):
    """Beside `TwoPhaseCommitSink`: rows of a large epoch need not pass through Python on their way into a file.

    Used when it is the job's only sink, since with several the epoch would be computed more than once. The whole epoch
    is then one slot, staged from the driver.
    """

    @abstractmethod
    def engine_target(self, context: SlotContext, schema: pa.Schema) -> EngineTarget | None:
        """Driver: where this attempt's rows go; None where the engine would not write what this sink promises.

        The folder must not exist yet, and `pending` must find it under the attempt's transaction name.
        """

    @abstractmethod
    def engine_pre_commit(self, context: SlotContext) -> Handle:
        """Driver, once, after the engine has written: as `pre_commit`; the handle has the number of `rows`."""
