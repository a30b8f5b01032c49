"""Doing it: thin, in the plan's order, each step safe to repeat.

A crash between any two steps leaves a state from which the next survey makes a plan for the rest. A step that finds the
world changed (another driver decided meanwhile) ends this pass, and a new survey is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from onceward.epoch import (
    Publish,
    Publisher,
    PublishLimits,
    ReportLost,
    RollbackDetector,
    RunContext,
    Settle,
    abort_all,
    contradiction,
    orphans,
    take_over,
)
from onceward.epoch.run_context import notify
from onceward.errors import Fenced
from onceward.identity import Fingerprint, Generation
from onceward.recovery.plan import (
    Accept,
    AlreadyPublished,
    BeginAnew,
    CommitPrepared,
    Plan,
    Reap,
    Refuse,
    RepairLog,
    TakeOver,
    make_plan,
)
from onceward.recovery.survey import Survey, take_survey

_PASSES = 5


@dataclass(slots=True)
class Recovered:
    """What the run that follows must know."""

    takeovers: dict[int, int] = field(default_factory=dict)
    published: dict[int, Fingerprint] = field(default_factory=dict)


def recover(
    context: RunContext,
    survey: Survey | None = None,
    *,
    known_generations: frozenset[Generation],
    accepted: frozenset[Accept] = frozenset(),
    limits: PublishLimits | None = None,
    on_plan: Callable[[Plan], None] = lambda plan: None,
) -> Recovered:
    """Survey, plan, execute, until a pass ends with nothing left to reconsider. The first survey may be given."""
    done = Recovered()
    for _ in range(_PASSES):
        survey = survey or take_survey(context, known_generations=known_generations, limits=limits)
        plan = make_plan(survey, accepted)
        if plan.refusal is None:
            on_plan(plan)
            if _execute(context, plan, done, limits):
                return done
        elif not survey.is_outdated(context):
            raise plan.refusal
        survey = None
    raise Fenced("another driver keeps changing this checkpoint", hint="stop it, then start again")


def _execute(context: RunContext, plan: Plan, done: Recovered, limits: PublishLimits | None) -> bool:
    """True when every step held; False when the world moved and must be surveyed again."""
    publisher = Publisher(context, limits)
    for step in plan.steps:
        match step:
            case CommitPrepared(transactions):
                RollbackDetector(context, limits).commit_survivors(transactions)
            case Settle(epoch) | Publish(epoch):
                if context.watermark() < epoch:
                    publisher.publish_epoch(epoch)
            case ReportLost(epoch):
                if context.decisions.decided() < epoch:
                    raise contradiction(epoch)
                publisher.publish_epoch(epoch)
            case TakeOver(epoch):
                takeover = take_over(context, epoch)
                if takeover is None:
                    return False
                notify(context.hooks.on_abort, epoch)
                done.takeovers[epoch] = takeover
            case AlreadyPublished(epoch, fingerprint, settled):
                if not settled:
                    publisher.publish_forgotten(epoch)
                done.published[epoch] = fingerprint
            case Reap():
                abort_all(context, orphans(context))
            case Refuse(error):
                raise error
            case BeginAnew():
                raise AssertionError("the new generation stands before the survey that this plan was made from")
            case RepairLog():
                raise AssertionError("the logs are put right before the survey that this plan was made from")
    return True
