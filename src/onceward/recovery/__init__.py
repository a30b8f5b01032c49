"""*Recover*: before every start, look at everything (survey), decide (plan, a pure function), do it (execute)."""

from onceward.recovery.execute import Recovered, recover
from onceward.recovery.in_doubt import InDoubt, Verdict, abort_by_hand, commit_by_hand, in_doubt
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
from onceward.recovery.poison import PoisonRow, divert_poison, find_poison
from onceward.recovery.reidentify import NewIdentity, propose_identity, write_identity
from onceward.recovery.replay import Replay, plan_replay, replay
from onceward.recovery.resolve import (
    Proposal,
    propose_accept_loss,
    propose_epoch_is_published,
    propose_slot_is_in,
    propose_withdraw,
    record,
)
from onceward.recovery.start import Opened, inspect_checkpoint, look_at, open_checkpoint
from onceward.recovery.strays import abort_strays, strays, to_abort
from onceward.recovery.survey import EpochSurvey, Survey, take_survey

__all__ = [
    "Accept",
    "AlreadyPublished",
    "EpochSurvey",
    "InDoubt",
    "NewIdentity",
    "Opened",
    "Plan",
    "PoisonRow",
    "Proposal",
    "Publish",
    "Reap",
    "Recovered",
    "Refuse",
    "RepairLog",
    "Replay",
    "ReportLost",
    "Settle",
    "Step",
    "Survey",
    "TakeOver",
    "Verdict",
    "abort_by_hand",
    "abort_strays",
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
    "propose_accept_loss",
    "propose_epoch_is_published",
    "propose_identity",
    "propose_slot_is_in",
    "propose_withdraw",
    "record",
    "recover",
    "replay",
    "strays",
    "take_survey",
    "to_abort",
    "write_identity",
]
