"""Doing it: thin, in the plan's order, each step safe to repeat.

A crash between any two steps leaves a state from which the next survey makes a plan for the rest. A step that finds the
world changed (another driver decided meanwhile) ends this pass, and a new survey is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from onceward.epoch import Publisher, PublishLimits, RunContext, exits, settle_fates, take_over
from onceward.errors import DamagedFile, EpochLost, Fenced
from onceward.identity import Fingerprint, Generation
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
    TakeOver,
    make_plan,
)
from onceward.recovery.survey import take_survey

_PASSES = 5


@dataclass(slots=True)
class Recovered:
    """What the run that follows must know."""

    takeovers: dict[int, int] = field(default_factory=dict)
    published: dict[int, Fingerprint] = field(default_factory=dict)


def recover(
    context: RunContext,
    *,
    known_generations: frozenset[Generation],
    accepted: frozenset[Accept] = frozenset(),
    limits: PublishLimits | None = None,
    on_plan: Callable[[Plan], None] = lambda plan: None,
) -> Recovered:
    """Survey, plan, execute, until a pass ends with nothing left to reconsider."""
    done = Recovered()
    for _ in range(_PASSES):
        survey = take_survey(context, known_generations=known_generations)
        plan = make_plan(survey, accepted)
        if plan.refusal is not None:
            if survey.is_outdated(context):
                continue
            raise plan.refusal
        on_plan(plan)
        if _execute(context, plan, done, Publisher(context, limits)):
            return done
    raise Fenced("another driver keeps changing this checkpoint", hint="stop it, then start again")


def _execute(context: RunContext, plan: Plan, done: Recovered, publisher: Publisher) -> bool:
    """True when every step held; False when the world moved and must be surveyed again."""
    for step in plan.steps:
        match step:
            case Settle() | Publish():
                # The publisher works upwards through all decided epochs, and looks for itself whether each still needs
                # it; one call does this step and the ones like it that follow.
                publisher.publish_decided()
            case ReportLost(epoch):
                if context.decisions.decided() >= epoch:
                    publisher.publish_decided()
                else:
                    raise _contradiction(epoch)
            case TakeOver(epoch):
                takeover = take_over(context, epoch)
                if takeover is None:
                    return False
                done.takeovers[epoch] = takeover
            case AlreadyPublished(epoch, fingerprint, settled):
                if not settled:
                    _finish_forgotten(context, epoch, publisher)
                done.published[epoch] = fingerprint
            case Reap():
                publisher.sweep()
            case Refuse(error):
                raise error
            case RepairLog():
                raise AssertionError("the logs are put right before the survey that this plan was made from")
    return True


def _finish_forgotten(context: RunContext, epoch: int, publisher: Publisher) -> None:
    """Receipts prove the decision: publish what is missing as if the commit log still said so."""
    try:
        manifest = context.register.manifest(epoch, settle_fates(context, epoch))
    except DamagedFile:
        manifest = None
    if context.watermark() >= epoch:
        return
    if manifest is None and context.how_resolved(epoch) is not None:
        publisher.settle_without_manifest(epoch)
        return
    if manifest is None:
        raise _contradiction(epoch)
    publisher.publish_manifest(manifest)


def _contradiction(epoch: int) -> EpochLost:
    return EpochLost(
        "the target has receipts of an undecided epoch whose manifest is gone",
        epoch=epoch,
        hint=f"restore the folder onceward/manifests of this checkpoint from a backup; {exits(epoch)}",
    )
