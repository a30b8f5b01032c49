"""*Recover*: before every start, look at everything (survey), decide (plan, a pure function), do it (execute)."""

from onceward.recovery.execute import Recovered, recover
from onceward.recovery.identify import has_begun, plain_context, read_identity, refuse_staged, sync_adopted
from onceward.recovery.plan import (
    Accept,
    AlreadyPublished,
    BeginAnew,
    CommitPrepared,
    Plan,
    Reap,
    Refuse,
    RepairLog,
    Step,
    TakeOver,
    describe,
    make_plan,
)
from onceward.recovery.start import (
    Opened,
    failures_as_target_unavailable,
    inspect_checkpoint,
    look_at,
    open_checkpoint,
)
from onceward.recovery.survey import Survey, take_survey

__all__ = [
    "Accept",
    "AlreadyPublished",
    "BeginAnew",
    "CommitPrepared",
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
    "failures_as_target_unavailable",
    "has_begun",
    "inspect_checkpoint",
    "look_at",
    "make_plan",
    "open_checkpoint",
    "plain_context",
    "read_identity",
    "recover",
    "refuse_staged",
    "sync_adopted",
    "take_survey",
]
