"""The whole list, in the direction of the protocol."""

from __future__ import annotations

from mutants import (
    checkpointing,
    dashboard,
    decide,
    look_back,
    operators,
    publish,
    recover,
    restart,
    savepoints,
    settle,
    spark_logs,
    sqlite_sink,
    stage,
    storage,
    targets,
    verify,
)
from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *stage.RULES,
    *decide.RULES,
    *publish.RULES,
    *settle.RULES,
    *recover.RULES,
    *look_back.RULES,
    *spark_logs.RULES,
    *checkpointing.RULES,
    *storage.RULES,
    *targets.RULES,
    *sqlite_sink.RULES,
    *verify.RULES,
    *operators.RULES,
    *savepoints.RULES,
    *restart.RULES,
    *dashboard.RULES,
)
