"""Opening a checkpoint: make sure that it is ours and the one the target knows, then recover.

The identity is written only after the first survey found nothing to object to, so that a refused start leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from onceward.contracts import AnySink, Clock, DecisionLog, Guarantee, Hooks, Storage
from onceward.contracts.events import Listener
from onceward.epoch import (
    Coordinator,
    PublishLimits,
    RunContext,
)
from onceward.epoch.run_context import log
from onceward.errors import (
    CheckpointUnknown,
    ConfigurationError,
    Fenced,
    OncewardError,
    ReceiptsMoved,
    TargetUnavailable,
)
from onceward.identity import Generation, JobIdentity, JobName, new_generation, new_run
from onceward.journal import (
    Diversions,
    IdentityRecord,
    KeptLog,
    Resolutions,
    Resolved,
    SettledLog,
)
from onceward.recovery.execute import Recovered, recover
from onceward.recovery.identify import (
    has_begun,
    identify,
    is_copy,
    plain_context,
    read_identity,
    refuse_staged,
    refuse_unlike,
)
from onceward.recovery.plan import Accept, BeginAnew, Plan, Refuse, RepairLog, begins_anew, make_plan
from onceward.recovery.repair import repair, repairs_needed
from onceward.recovery.survey import Survey, take_survey
from onceward.recovery.targets import (
    receipts_places,
    refuse_moved_receipts,
    target_facts,
    warn_of_changed_targets,
    warn_of_new_sinks,
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint that is recovered and ready for its next epoch."""

    context: RunContext
    coordinator: Coordinator
    record: IdentityRecord


def open_checkpoint(
    *,
    name: JobName,
    sinks: tuple[AnySink, ...],
    guarantee: Guarantee,
    storage: Storage,
    decisions: DecisionLog,
    directory_id: str,
    clock: Clock,
    query: str | None = None,
    hooks: Hooks | None = None,
    listeners: tuple[Listener, ...] = (),
    accepted: frozenset[Accept] = frozenset(),
    limits: PublishLimits | None = None,
    on_plan: Callable[[Plan], None] = lambda plan: None,
) -> Opened:
    """Identify, survey, refuse or recover. `directory_id` names the directory itself, so that a copy is noticed.

    `query` is the engine's id of the query whose logs these are, None before its first start.
    """
    limits, record = limits or PublishLimits(), read_identity(storage)
    adopted = record.adopted if record else decisions.decided()
    context = RunContext(
        job=JobIdentity(name, record.generation if record else new_generation()),
        run=new_run(),
        sinks=sinks,
        guarantee=guarantee,
        storage=storage,
        decisions=decisions,
        clock=clock,
        adopted=adopted,
        diverted=Diversions(storage).all(above=max(adopted, SettledLog(storage).watermark())),
        resolved=Resolutions(storage).read(),
        hooks=hooks or Hooks(),
        listeners=listeners,
    )
    refuse_unlike(record, name, directory_id, accepted, query)
    _put_logs_right(context, record, on_plan)
    with failures_as_target_unavailable():
        context = replace(context, target_facts=target_facts(context))
        context, survey = _surveyed(context, record, directory_id, query, limits)
    warn_of_changed_targets(context)
    warn_of_new_sinks(context, survey.markers)
    plan = make_plan(survey, accepted)
    if plan.refusal is not None:
        raise _just_opened() if survey.is_outdated(context) or read_identity(storage) != record else plan.refusal
    found, record = record, identify(context, survey, plan, record, directory_id, query)
    context = replace(context, job=record.identity, adopted=record.adopted)
    with failures_as_target_unavailable():
        known, first = frozenset(record.known), survey if record == found else None
        done = recover(context, first, known_generations=known, accepted=accepted, limits=limits, on_plan=on_plan)
    _warn_of_damage(survey)
    return Opened(context, _coordinator(context, done, record), record)


def _surveyed(
    context: RunContext, record: IdentityRecord | None, directory_id: str, query: str | None, limits: PublishLimits
) -> tuple[RunContext, Survey]:
    """What a start goes by, and a dry run: the context with the places of the receipts, and what was found."""
    context = replace(context, receipts_at=receipts_places(context))
    refuse_moved_receipts(context)
    survey = take_survey(
        context,
        known_generations=frozenset(record.known) if record else frozenset[Generation](),
        is_identified=record is not None,
        is_copy=record is not None and is_copy(record, directory_id, query),
        restored=record.restored if record is not None else None,
        limits=limits,
    )
    return context, survey


def _coordinator(context: RunContext, done: Recovered, record: IdentityRecord) -> Coordinator:
    begun_as = record.guarantee_of
    return Coordinator(context, takeovers=done.takeovers, published=done.published, guarantee_of=begun_as)


def _put_logs_right(context: RunContext, record: IdentityRecord | None, on_plan: Callable[[Plan], None]) -> None:
    """Only where they are ours: what a plain query did for an entry that is torn, nobody knows."""
    if record is None:
        try:
            if context.adopted >= 0:
                refuse_staged(context)
        except CheckpointUnknown as error:
            raise _just_opened() if read_identity(context.storage) is not None else error from None
        return
    if repairs := repairs_needed(context):
        on_plan(Plan(tuple(RepairLog(one) for one in repairs)))
        repair(context, repairs)


def _just_opened() -> Fenced:
    """Not a contradiction: another driver went on between our look at the logs and our look at the targets."""
    return Fenced("another driver has just opened this checkpoint", hint="start one driver for one checkpoint")


def _warn_of_damage(survey: Survey) -> None:
    if survey.watermark_damaged is not None:
        log.warning("%s; its name tells that its epoch is settled, and no more was needed", survey.watermark_damaged)


def inspect_checkpoint(
    *,
    sinks: tuple[AnySink, ...],
    storage: Storage,
    decisions: DecisionLog,
    directory_id: str,
    clock: Clock,
    query: str | None = None,
    accepted: frozenset[Accept] = frozenset(),
    limits: PublishLimits | None = None,
    name: JobName | None = None,
) -> Plan:
    """The plan that the next start would carry out. Writes nothing. The job's name is needed on a checkpoint that has
    no identity yet."""
    record = read_identity(storage)
    if record is not None:
        try:
            refuse_unlike(record, name or record.job, directory_id, accepted, query)
        except OncewardError as error:
            return Plan((Refuse(error),))
    try:
        if name is not None and record is None and has_begun(decisions):
            context = plain_context(name=name, sinks=sinks, storage=storage, decisions=decisions, clock=clock)
            refuse_staged(context)
        else:
            context, record = look_at(
                sinks=sinks,
                storage=storage,
                decisions=decisions,
                directory_id=directory_id,
                clock=clock,
                accepted=accepted,
            )
            if repairs := repairs_needed(context):
                return Plan(tuple(RepairLog(one) for one in repairs))
        with failures_as_target_unavailable():
            _, survey = _surveyed(context, record, directory_id, query, limits or PublishLimits())
    except (CheckpointUnknown, ReceiptsMoved) as error:
        return Plan((Refuse(error),))
    plan = make_plan(survey, accepted)
    if plan.refusal is None and begins_anew(survey, plan.accepted):
        return Plan((BeginAnew(),), plan.accepted)
    return plan


def look_at(
    *,
    sinks: tuple[AnySink, ...],
    storage: Storage,
    decisions: DecisionLog,
    directory_id: str,
    clock: Clock,
    accepted: frozenset[Accept] = frozenset(),
    name: JobName | None = None,
    past_damage: bool = False,
) -> tuple[RunContext, IdentityRecord]:
    """A checkpoint as it stands, beside whoever may be running on it. Writes nothing; a copy is refused, and so is that
    of another job than the one that is named.

    `past_damage`: for whoever is about to fix what a person has said before, and which can no longer be read.
    """
    record = read_identity(storage)
    if record is None:
        hint = "give the directory that the job has as `checkpoint`"
        if has_begun(decisions):
            hint = "a plain Spark query has: `onceward adopt CHECKPOINT --job FILE` takes it over"
        raise ConfigurationError("no onceward job has run on this checkpoint", hint=hint)
    refuse_unlike(record, name or record.job, directory_id, accepted)
    context = RunContext(
        job=record.identity,
        run=new_run(),
        sinks=sinks,
        guarantee=Guarantee.EXACTLY_ONCE,
        storage=storage,
        decisions=decisions,
        clock=clock,
        adopted=record.adopted,
        diverted=Diversions(storage).all(above=_settled_and_gone(record.adopted, storage), only_whole=past_damage),
        resolved=Resolved(Resolutions(storage).history()) if past_damage else Resolutions(storage).read(),
    )
    return context, record


def _settled_and_gone(adopted: int, storage: Storage) -> int:
    """The epoch up to which nothing is published any more, not even by a replay of what is kept."""
    return max(adopted, min([SettledLog(storage).watermark(), *(epoch - 1 for epoch in KeptLog(storage).epochs())]))


@contextmanager
def failures_as_target_unavailable() -> Iterator[None]:
    """A target that does not answer, or does not let us look or abort: what it holds is unknown, so nothing starts."""
    try:
        yield
    except OncewardError:
        raise
    except Exception as error:
        raise TargetUnavailable(
            f"a target does not let onceward recover: {type(error).__name__}: {error}",
            hint="see that the target runs, and that this user may read and remove what onceward keeps there",
        ) from error
