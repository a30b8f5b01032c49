"""*Recover*: before every start, look at everything (survey), decide (plan, a pure function), do it (execute)."""

from onceward.recovery.execute import Recovered, recover
from onceward.recovery.plan import (
    Accept,
    AlreadyPublished,
    Plan,
    Publish,
    Reap,
    Refuse,
    RepairLog,
    ReportLost,
    Settle,
    Step,
    TakeOver,
    describe,
    make_plan,
)
from onceward.recovery.start import Opened, inspect_checkpoint, look_at, open_checkpoint
from onceward.recovery.survey import EpochSurvey, Survey, take_survey

__all__ = [
    "Accept",
    "AlreadyPublished",
    "EpochSurvey",
    "Opened",
    "Plan",
    "Publish",
    "Reap",
    "Recovered",
    "Refuse",
    "RepairLog",
    "ReportLost",
    "Settle",
    "Step",
    "Survey",
    "TakeOver",
    "describe",
    "inspect_checkpoint",
    "look_at",
    "make_plan",
    "open_checkpoint",
    "recover",
    "take_survey",
]
