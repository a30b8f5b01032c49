"""The façade: a job is a pipeline, its sinks and a guarantee; everything else follows from its checkpoint.

`facade` is what users make and start, `options` checks what they asked for, `checkpoint` opens and recovers the folder
beside Spark's logs, `restarting` starts a job again in its own process, `reworked` fits a savepoint to a changed job,
and `inspect` is through what the commands look at a job.
"""

from onceward.job.checkpoint import inspect_job_checkpoint, is_new, open_job_checkpoint
from onceward.job.facade import Job, foreach_batch, workload_of
from onceward.job.inspect import job_context, job_parts, job_receipts
from onceward.job.options import accepted_from, chosen_sinks
from onceward.job.restarting import checkpoint_reached, life_log
from onceward.job.reworked import PlannedRework, plan_rework
from onceward.job.shown import shown_options

__all__ = [
    "Job",
    "PlannedRework",
    "accepted_from",
    "checkpoint_reached",
    "chosen_sinks",
    "foreach_batch",
    "inspect_job_checkpoint",
    "is_new",
    "job_context",
    "job_parts",
    "job_receipts",
    "life_log",
    "open_job_checkpoint",
    "plan_rework",
    "shown_options",
    "workload_of",
]
