"""Doing it: thin, in the plan's order, each step safe to repeat.

A crash between any two steps leaves a state from which the next survey makes a plan for the rest. A step that finds the
world changed (another driver decided meanwhile) ends this pass, and a new survey is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from onceward.epoch import Ground, Publisher, PublishLimits, exits, settle_fates, take_over
from onceward.errors import DamagedFile, EpochLost, Fenced
from onceward.identity import Fingerprint, Generation
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
    ground: Ground,
    *,
    known_generations: frozenset[Generation],
    accepted: frozenset[Accept] = frozenset(),
    limits: PublishLimits | None = None,
    tell: Callable[[Plan], None] = lambda plan: None,
) -> Recovered:
    """Survey, plan, execute, until a pass ends with nothing left to reconsider."""
    done = Recovered()
    for _ in range(_PASSES):
        survey = take_survey(ground, known_generations=known_generations)
        plan = make_plan(survey, accepted)
        if plan.refusal is not None:
            if survey.is_outdated(ground):
                continue
            raise plan.refusal
        tell(plan)
        if _execute(ground, plan, done, Publisher(ground, limits)):
            return done
    raise Fenced("another driver keeps changing this checkpoint", hint="stop it, then start again")


def _execute(ground: Ground, plan: Plan, done: Recovered, publisher: Publisher) -> bool:
    """True when every step held; False when the world moved and must be surveyed again."""
    for step in plan.steps:
        match step:
            case Settle() | Publish():
                # The publisher works upwards through all decided epochs, and looks for itself whether each still needs
                # it; one call does this step and the ones like it that follow.
                publisher.publish_decided()
            case Lose(epoch):
                if ground.decisions.decided() >= epoch:
                    publisher.publish_decided()
                else:
                    raise _contradiction(epoch)
            case TakeOver(epoch):
                takeover = take_over(ground, epoch)
                if takeover is None:
                    return False
                done.takeovers[epoch] = takeover
            case AlreadyPublished(epoch, fingerprint, settled):
                if not settled:
                    _finish_forgotten(ground, epoch, publisher)
                done.published[epoch] = fingerprint
            case Reap():
                publisher.sweep()
            case Refuse(error):
                raise error
            case RepairLog():
                raise AssertionError("the logs are put right before the survey that this plan was made from")
    return True


def _finish_forgotten(ground: Ground, epoch: int, publisher: Publisher) -> None:
    """Receipts prove the decision: publish what is missing as if the commit log still said so."""
    try:
        manifest = ground.register.manifest(epoch, settle_fates(ground, epoch))
    except DamagedFile:
        manifest = None
    if ground.watermark() >= epoch:
        return
    if manifest is None and ground.how_resolved(epoch) is not None:
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
