"""Is a checkpoint whole? Reads Spark's part and ours without Spark; and takes it back to an epoch from which it is."""

from onceward.verify.look import Targets, look, verify
from onceward.verify.removed import Restoration
from onceward.verify.report import Candidate, Report
from onceward.verify.restore import plan_restore, restore

__all__ = ["Candidate", "Report", "Restoration", "Targets", "look", "plan_restore", "restore", "verify"]
