"""Opening a checkpoint: make sure that it is ours and the one the target knows, then recover.

The identity is written only after the first survey found nothing to object to, so that a refused start leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from onceward.contracts import AnySink, Clock, DecisionLog, Guarantee, Hooks, Storage
from onceward.epoch import Coordinator, Ground, Publisher, PublishLimits, newest_markers
from onceward.epoch.ground import log
from onceward.errors import (
    CheckpointCopied,
    CheckpointRolledBack,
    ConfigurationError,
    DamagedFile,
    Fenced,
    NewerFormat,
    OncewardError,
    ReceiptsMoved,
    TargetRolledBack,
    TargetUnavailable,
)
from onceward.identity import Generation, JobIdentity, JobName, new_generation, new_run
from onceward.manifest import (
    Diversions,
    IdentityFile,
    IdentityRecord,
    Resolutions,
    Resolved,
    SettledLog,
    forget_settled,
)
from onceward.recovery.execute import recover
from onceward.recovery.plan import Accept, AlreadyPublished, Lose, Plan, Refuse, RepairLog, make_plan, rolled_back
from onceward.recovery.repair import repair, repairs_needed
from onceward.recovery.strays import warn_of_strays
from onceward.recovery.survey import Survey, take_survey
from onceward.recovery.targets import came_back, receipts_places, refuse_moved_receipts
from onceward.storage import is_same_place


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint that is recovered and ready for its next epoch."""

    ground: Ground
    coordinator: Coordinator
    record: IdentityRecord


def open_checkpoint(
    *,
    name: JobName,
    sinks: tuple[AnySink, ...],
    guarantee: Guarantee,
    storage: Storage,
    decisions: DecisionLog,
    place: str,
    clock: Clock,
    query: str | None = None,
    hooks: Hooks | None = None,
    accepted: frozenset[Accept] = frozenset(),
    limits: PublishLimits | None = None,
    tell: Callable[[Plan], None] = lambda plan: None,
) -> Opened:
    """Identify, survey, refuse or recover. `place` names the directory itself, so that a copy is noticed.

    `query` is the engine's id of the query whose logs these are, None before its first start.
    """
    record = read_identity(storage)
    adopted = record.adopted if record else decisions.decided()
    ground = Ground(
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
    )
    _refuse_unlike(record, name, place, accepted, query)
    if repairs := repairs_needed(ground):
        tell(Plan(tuple(RepairLog(one) for one in repairs)))
        repair(ground, repairs)
    known = frozenset(record.known) if record else frozenset[Generation]()
    keep = (limits or PublishLimits()).keep_receipts
    with _told_plainly():
        ground = replace(ground, receipts_at=receipts_places(ground))
        refuse_moved_receipts(ground)
        markers = newest_markers(ground)
        survey = take_survey(ground, known_generations=known, is_identified=record is not None)
    plan = make_plan(survey, accepted)
    if plan.refusal is not None:
        if survey.is_outdated(ground) or read_identity(storage) != record:
            # Not a contradiction: another driver went on between our look at the logs and our look at the targets.
            raise Fenced("another driver has just opened this checkpoint", hint="start one driver for one checkpoint")
        raise plan.refusal
    if record is not None and _is_copy(record, place, query) and Accept.ROLLBACK not in accepted:
        _refuse_older_copy(survey, plan)
    record = _identify(ground, survey, record, place, query)
    ground = replace(ground, job=record.identity, adopted=record.adopted)
    with _told_plainly():
        if held := came_back(ground, markers, survey.receipts, keep_receipts=keep):
            Publisher(ground, limits).commit_survivors(held)
        done = recover(ground, known_generations=frozenset(record.known), accepted=accepted, limits=limits, tell=tell)
    _warn_of_damage(survey)
    warn_of_strays(ground)
    begun_as = record.guarantee_of
    coordinator = Coordinator(ground, takeovers=done.takeovers, published=done.published, guarantee_of=begun_as)
    return Opened(ground, coordinator, record)


def _warn_of_damage(survey: Survey) -> None:
    if survey.watermark_damaged is not None:
        log.warning("%s; its name tells that its epoch is settled, and no more was needed", survey.watermark_damaged)


def inspect_checkpoint(
    *,
    sinks: tuple[AnySink, ...],
    storage: Storage,
    decisions: DecisionLog,
    place: str,
    clock: Clock,
    accepted: frozenset[Accept] = frozenset(),
    name: JobName | None = None,
) -> Plan:
    """The plan that the next start would carry out. Writes nothing. The job's name is needed on a checkpoint that has
    no identity yet."""
    if name is not None and read_identity(storage) is None and decisions.decided() >= 0:
        fresh = Ground(
            job=JobIdentity(name, new_generation()),
            run=new_run(),
            sinks=sinks,
            guarantee=Guarantee.EXACTLY_ONCE,
            storage=storage,
            decisions=decisions,
            clock=clock,
            adopted=decisions.decided(),
        )
        with _told_plainly():
            return make_plan(take_survey(fresh, known_generations=frozenset(), is_identified=False), accepted)
    try:
        ground, record = look_at(
            sinks=sinks, storage=storage, decisions=decisions, place=place, clock=clock, accepted=accepted
        )
    except CheckpointCopied as error:
        return Plan((Refuse(error),))
    if repairs := repairs_needed(ground):
        return Plan(tuple(RepairLog(one) for one in repairs))
    try:
        with _told_plainly():
            refuse_moved_receipts(replace(ground, receipts_at=receipts_places(ground)))
            keep = PublishLimits().keep_receipts
            markers = newest_markers(ground)
            survey = take_survey(ground, known_generations=frozenset(record.known))
        came_back(ground, markers, survey.receipts, keep_receipts=keep)
    except (ReceiptsMoved, TargetRolledBack) as error:
        return Plan((Refuse(error),))
    return make_plan(survey, accepted)


def look_at(
    *,
    sinks: tuple[AnySink, ...],
    storage: Storage,
    decisions: DecisionLog,
    place: str,
    clock: Clock,
    accepted: frozenset[Accept] = frozenset(),
    past_damage: bool = False,
) -> tuple[Ground, IdentityRecord]:
    """A checkpoint as it stands, beside whoever may be running on it. Writes nothing; a copy is refused.

    `past_damage`: for whoever is about to mend what a person has said before, and which can no longer be read.
    """
    record = read_identity(storage)
    if record is None:
        raise ConfigurationError(
            "no onceward job has run on this checkpoint", hint="give the directory that the job has as `checkpoint`"
        )
    _refuse_unlike(record, record.job, place, accepted)
    ground = Ground(
        job=record.identity,
        run=new_run(),
        sinks=sinks,
        guarantee=Guarantee.EXACTLY_ONCE,
        storage=storage,
        decisions=decisions,
        clock=clock,
        adopted=record.adopted,
        diverted=Diversions(storage).all(
            above=max(record.adopted, SettledLog(storage).watermark()), only_whole=past_damage
        ),
        resolved=Resolved(Resolutions(storage).history()) if past_damage else Resolutions(storage).read(),
    )
    return ground, record


@contextmanager
def _told_plainly() -> Iterator[None]:
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


def read_identity(storage: Storage) -> IdentityRecord | None:
    """The identity that counts, None in a fresh checkpoint. A damaged one is refused, with the way to say it anew."""
    try:
        return IdentityFile(storage).read()
    except NewerFormat:
        raise
    except DamagedFile as error:
        raise DamagedFile(
            error.message,
            hint="restore it from a backup of the checkpoint; or run `onceward resolve identity FILE`, which finds out "
            "from the manifests, segments and receipts which generation this checkpoint is, and writes it down anew",
        ) from error


def _refuse_unlike(
    record: IdentityRecord | None, name: JobName, place: str, accepted: frozenset[Accept], query: str | None = None
) -> None:
    if record is None:
        return
    if record.job != name:
        raise ConfigurationError(
            f"this checkpoint belongs to the job {record.job!r}, not to {name!r}",
            hint="give each job its own checkpoint directory, or keep the job's name",
        )
    if not is_same_place(record.place, place) and Accept.COPY not in accepted:
        raise CheckpointCopied(
            "this checkpoint directory is a copy (or was restored from one); the original may still be running",
            hint="make sure that the original is stopped or has its own target, then start once with --accept copy "
            "(in Python: accept='copy')",
        )
    if _is_another(record.query, query) and Accept.COPY not in accepted:
        raise CheckpointCopied(
            f"Spark's files here are those of the query {query}; this checkpoint was made for the query {record.query}",
            hint="the directory was put together from two checkpoints: restore it whole from one backup; if Spark's "
            "files are the right ones, start once with --accept copy (in Python: accept='copy')",
        )


def _is_copy(record: IdentityRecord, place: str, query: str | None) -> bool:
    """Whether the directory, or the query whose logs are in it, is another than the one that was recorded."""
    return not is_same_place(record.place, place) or _is_another(record.query, query)


def _is_another(recorded: str | None, query: str | None) -> bool:
    """Whether both are known and differ."""
    return recorded is not None and query is not None and recorded != query


def _refuse_older_copy(survey: Survey, plan: Plan) -> None:
    """A copy that has not decided an epoch which the target has. It gets a generation of its own, in which the receipts
    of the original prove nothing: it would deliver that epoch again."""
    for step in plan.steps:
        match step:
            case Lose(epoch) | AlreadyPublished(epoch, _, False) if epoch > survey.decided:
                raise rolled_back(f"the target has epoch {epoch}, and this copy was made before it was decided")
            case _:
                pass


def _identify(
    ground: Ground, survey: Survey, record: IdentityRecord | None, place: str, query: str | None
) -> IdentityRecord:
    """The identity to run under: the one that stands, or a new record for what has changed or was just accepted."""
    foreign = {r.generation for r in survey.receipts} - survey.known_generations
    agreed = survey.watermark
    if record is None:
        wanted = IdentityRecord(
            0, ground.job.name, ground.job.generation, tuple(sorted(foreign)), ground.adopted, place, query
        )
    else:
        # Both are refusals of the plan without any acceptance, so that an accepted one is still seen here.
        contradictions = [getattr(step, "error", None) for step in make_plan(survey).steps]
        rolled_back = any(isinstance(error, CheckpointRolledBack) for error in contradictions)
        new_life = rolled_back or _is_copy(record, place, query)
        agreed = _agreed(ground, survey) if rolled_back else agreed
        wanted = replace(
            record,
            known=tuple(sorted({*record.known, *foreign} | ({record.generation} if new_life else set()))),
            generation=new_generation() if new_life else record.generation,
            # Records of epochs that were rolled back are dropped below.
            adopted=agreed if agreed < survey.watermark else record.adopted,
            place=place,
            query=query or record.query,
        )
    wanted = _promised(wanted, ground.guarantee, newest=max(survey.planned, survey.decided))
    if record is not None:
        if wanted == record:
            return record
        wanted = replace(wanted, number=record.number + 1)
    standing = IdentityFile(ground.storage).create(wanted)
    if standing != wanted:
        raise Fenced("another driver has just opened this checkpoint", hint="start one driver for one checkpoint")
    if agreed < survey.watermark:
        _forget_above(ground, agreed, survey)
    return standing


def _promised(record: IdentityRecord, wanted: Guarantee, *, newest: int) -> IdentityRecord:
    """The record with the guarantee that the job asks for, from the next epoch on.

    The newest one may be in flight: what was begun at most once must not be sent again, and what was begun exactly once
    must not be let go, so it is finished as it was begun. Where the logs went back, so does the change.
    """
    since = min(record.since, newest + 1)
    if record.guarantee is wanted:
        return replace(record, since=since)
    if record.guarantee is None:
        return replace(record, guarantee=wanted, since=newest + 1)
    before = record.guarantee_of(newest)
    log.warning(
        "the guarantee changes from %s to %s with epoch %d; one that is in flight is finished as it was begun",
        record.guarantee.value,
        wanted.value,
        newest + 1,
    )
    return replace(record, guarantee=wanted, since=newest + 1, before=before)


def _agreed(ground: Ground, survey: Survey) -> int:
    """The last epoch of which the settled markers and Spark's log, as it is now, say the same.

    Where Spark's logs alone went back, all that is decided now was settled long ago. Where others were put in their
    place, epochs that are decided in them were settled with other rows: they count as not settled any more, and without
    a manifest they stop the job with `EpochLost`, for a person to rewind.
    """
    for epoch in ground.settled.epochs():
        barrier = ground.decisions.barrier(epoch) if epoch <= survey.watermark else None
        try:
            marker = ground.settled.marker(epoch)
        except DamagedFile:
            continue
        if barrier and marker and marker.fingerprint and marker.fingerprint != barrier.fingerprint:
            return min(epoch - 1, survey.decided)
    return min(survey.watermark, survey.decided)


def _forget_above(ground: Ground, agreed: int, survey: Survey) -> None:
    """After an accepted rollback: drop the records of epochs that, for this checkpoint, have not happened. What is
    decided and staged above the watermark has."""
    for epoch in ground.register.epochs():
        if agreed < epoch <= survey.watermark or survey.decided < min(epoch, survey.watermark):
            ground.register.forget(epoch)
    forget_settled(ground.storage, agreed + 1)
