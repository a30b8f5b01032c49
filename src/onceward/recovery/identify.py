"""Whose checkpoint it is: the identity that stands, what it is refused for, and the record of what was accepted."""

from __future__ import annotations

from dataclasses import replace

from onceward.contracts import AnySink, Clock, DecisionLog, Guarantee, Storage
from onceward.epoch import RunContext
from onceward.epoch.run_context import log
from onceward.errors import (
    CheckpointCopied,
    CheckpointRolledBack,
    CheckpointUnknown,
    ConfigurationError,
    DamagedFile,
    Fenced,
    NewerFormat,
)
from onceward.identity import JobIdentity, JobName, new_generation, new_run
from onceward.journal import IdentityFile, IdentityRecord, forget_settled
from onceward.recovery.plan import Accept, Plan
from onceward.recovery.rollback import begun
from onceward.recovery.survey import Survey
from onceward.storage import is_same_directory


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


def plain_context(
    *, name: JobName, sinks: tuple[AnySink, ...], storage: Storage, decisions: DecisionLog, clock: Clock
) -> RunContext:
    """A checkpoint that has no identity of ours, as a start would take it over: what is decided counts as delivered."""
    return RunContext(
        job=JobIdentity(name, new_generation()),
        run=new_run(),
        sinks=sinks,
        guarantee=Guarantee.EXACTLY_ONCE,
        storage=storage,
        decisions=decisions,
        clock=clock,
        adopted=decisions.decided(),
    )


def has_begun(decisions: DecisionLog) -> bool:
    """Whether the engine has planned or decided anything here."""
    return max(decisions.planned(), decisions.decided()) >= 0


def refuse_staged(context: RunContext) -> None:
    """Without an identity nobody may publish what is staged here, and going on would remove it."""
    epochs = sorted({*context.register.epochs(), *context.settled.epochs()})
    if epochs:
        raise CheckpointUnknown(
            f"the checkpoint's identity.json is lost, and its folder onceward/ has epochs {epochs[0]} to {epochs[-1]}",
            hint="restore it from a backup; or run `onceward resolve identity FILE`, which finds out from the "
            "manifests, segments and receipts which generation this checkpoint is, and writes it down anew",
        )


def sync_adopted(decisions: DecisionLog) -> None:
    """What an engine has written without us: from here on we rely on it."""
    if (planned := decisions.planned()) >= 0:
        decisions.sync_barrier(planned)
    if (decided := decisions.decided()) >= 0:
        decisions.sync_decision(decided)


def refuse_unlike(
    record: IdentityRecord | None,
    name: JobName,
    directory_id: str,
    accepted: frozenset[Accept],
    query: str | None = None,
) -> None:
    if record is None:
        return
    if record.job != name:
        raise ConfigurationError(
            f"this checkpoint belongs to the job {record.job!r}, not to {name!r}",
            hint="give each job its own checkpoint directory, or keep the job's name",
        )
    if not is_same_directory(record.directory_id, directory_id) and Accept.COPY not in accepted:
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


def is_copy(record: IdentityRecord, directory_id: str, query: str | None) -> bool:
    """Whether the directory, or the query whose logs are in it, is another than the one that was recorded."""
    return not is_same_directory(record.directory_id, directory_id) or _is_another(record.query, query)


def _is_another(recorded: str | None, query: str | None) -> bool:
    """Whether both are known and differ."""
    return recorded is not None and query is not None and recorded != query


def identify(
    context: RunContext,
    survey: Survey,
    plan: Plan,
    record: IdentityRecord | None,
    directory_id: str,
    query: str | None,
) -> IdentityRecord:
    """The identity to run under: the one that stands, or a new record for what has changed or was just accepted."""
    foreign = {r.generation for r in survey.receipts} - survey.known_generations
    agreed = survey.watermark
    if record is None:
        if max(survey.planned, survey.decided) >= 0:
            sync_adopted(context.decisions)
        wanted = IdentityRecord(
            0, context.job.name, context.job.generation, tuple(sorted(foreign)), context.adopted, directory_id, query
        )
    else:
        rolled_back = any(isinstance(error, CheckpointRolledBack) for error in plan.accepted)
        new_life = rolled_back or is_copy(record, directory_id, query)
        agreed = _agreed(context, survey) if rolled_back else agreed
        wanted = replace(
            record,
            known=tuple(sorted({*record.known, *foreign} | ({record.generation} if new_life else set()))),
            generation=new_generation() if new_life else record.generation,
            # Records of epochs that were rolled back are dropped below.
            adopted=agreed if agreed < survey.watermark else record.adopted,
            directory_id=directory_id,
            query=query or record.query,
            restored=begun(record.restored, survey.receipts),
        )
    wanted = _promised(wanted, context.guarantee, newest=max(survey.planned, survey.decided))
    if record is not None:
        if wanted == record:
            return record
        wanted = replace(wanted, number=record.number + 1)
    standing = IdentityFile(context.storage).create(wanted)
    if standing != wanted:
        raise Fenced("another driver has just opened this checkpoint", hint="start one driver for one checkpoint")
    if agreed < survey.watermark:
        _forget_above(context, agreed, survey)
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


def _agreed(context: RunContext, survey: Survey) -> int:
    """The last epoch of which the settled markers and Spark's log, as it is now, say the same.

    Where Spark's logs alone went back, all that is decided now was settled long ago. Where others were put in their
    place, epochs that are decided in them were settled with other rows: they count as not settled any more, and without
    a manifest they stop the job with `EpochLost`, for a person to rewind.
    """
    for epoch in context.settled.epochs():
        barrier = context.decisions.barrier(epoch) if epoch <= survey.watermark else None
        try:
            marker = context.settled.marker(epoch)
        except DamagedFile:
            continue
        if barrier and marker and marker.fingerprint and marker.fingerprint != barrier.fingerprint:
            return min(epoch - 1, survey.decided)
    return min(survey.watermark, survey.decided)


def _forget_above(context: RunContext, agreed: int, survey: Survey) -> None:
    """After an accepted rollback: drop the records of epochs that, for this checkpoint, have not happened. What is
    decided and staged above the watermark has."""
    for epoch in context.register.epochs():
        if agreed < epoch <= survey.watermark or survey.decided < min(epoch, survey.watermark):
            context.register.forget(epoch)
    forget_settled(context.storage, agreed + 1)
