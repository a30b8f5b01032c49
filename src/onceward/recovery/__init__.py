"""*Recover*: before every start, look at everything (survey), decide (plan, a pure function), do it (execute)."""

from onceward.recovery.execute import Recovered, recover
from onceward.recovery.plan import (
    Accept,
    AlreadyPublished,
    Plan,
    Reap,
    Refuse,
    RepairLog,
    Step,
    TakeOver,
    describe,
    make_plan,
)
from onceward.recovery.start import Opened, inspect_checkpoint, look_at, open_checkpoint
from onceward.recovery.survey import Survey, take_survey

__all__ = [
    "Accept",
    "AlreadyPublished",
    "Opened",
    "Plan",
    "Reap",
    "Recovered",
    "Refuse",
    "RepairLog",
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
