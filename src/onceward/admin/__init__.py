"""What a person does about a checkpoint: look at what waits, commit, abort, divert rows, resolve, publish again."""

from onceward.admin.adopt import Adoption, adopt, consequences, propose_adoption
from onceward.admin.in_doubt import InDoubt, Verdict, abort_by_hand, commit_by_hand, in_doubt, is_own
from onceward.admin.poison import PoisonRow, divert_poison, find_poison
from onceward.admin.reidentify import NewIdentity, propose_identity, write_identity
from onceward.admin.replay import Replay, plan_replay, replay
from onceward.admin.resolve import (
    Proposal,
    propose_accept_loss,
    propose_epoch_is_published,
    propose_slot_is_in,
    propose_withdraw,
    record,
)
from onceward.admin.strays import abort_strays, record_abort, strays, to_abort, warn_of_strays

__all__ = [
    "Adoption",
    "InDoubt",
    "NewIdentity",
    "PoisonRow",
    "Proposal",
    "Replay",
    "Verdict",
    "abort_by_hand",
    "abort_strays",
    "adopt",
    "commit_by_hand",
    "consequences",
    "divert_poison",
    "find_poison",
    "in_doubt",
    "is_own",
    "plan_replay",
    "propose_accept_loss",
    "propose_adoption",
    "propose_epoch_is_published",
    "propose_identity",
    "propose_slot_is_in",
    "propose_withdraw",
    "record",
    "record_abort",
    "replay",
    "strays",
    "to_abort",
    "warn_of_strays",
    "write_identity",
]
