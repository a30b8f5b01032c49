"""*Recover*: before every start, look at everything (survey), decide (plan, a pure function), do it (execute)."""

from onceward.recovery.execute import Recovered, recover
from onceward.recovery.in_doubt import InDoubt, Verdict, abort_by_hand, commit_by_hand, in_doubt
from onceward.recovery.plan import (
    Accept,
    AlreadyPublished,
    Lose,
    Plan,
    Publish,
    Reap,
    Refuse,
    RepairLog,
    Settle,
    Step,
    TakeOver,
    describe,
    make_plan,
)
from onceward.recovery.poison import PoisonRow, divert_poison, find_poison
from onceward.recovery.replay import Replay, plan_replay, replay
from onceward.recovery.start import Opened, inspect_checkpoint, look_at, open_checkpoint
from onceward.recovery.survey import EpochSurvey, Survey, take_survey

__all__ = [
    "Accept",
    "AlreadyPublished",
    "EpochSurvey",
    "InDoubt",
    "Lose",
    "Opened",
    "Plan",
    "PoisonRow",
    "Publish",
    "Reap",
    "Recovered",
    "Refuse",
    "RepairLog",
    "Replay",
    "Settle",
    "Step",
    "Survey",
    "TakeOver",
    "Verdict",
    "abort_by_hand",
    "commit_by_hand",
    "describe",
    "divert_poison",
    "find_poison",
    "in_doubt",
    "inspect_checkpoint",
    "look_at",
    "make_plan",
    "open_checkpoint",
    "plan_replay",
    "recover",
    "replay",
    "take_survey",
]
