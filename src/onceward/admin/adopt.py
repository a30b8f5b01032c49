"""A checkpoint that only Spark knows becomes onceward's: what was delivered before stays with whoever delivered it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from onceward.admin.reidentify import NewIdentity, write_identity
from onceward.admin.resolve import Proposal, propose_epoch_is_published, record
from onceward.contracts import AnySink, Clock, DecisionLog, Storage, TwoPhaseCommitSink
from onceward.epoch import RunContext
from onceward.errors import CheckpointUnknown, ConfigurationError, DamagedFile
from onceward.identity import Fingerprint, JobName
from onceward.journal import IdentityRecord, Kind, Resolution
from onceward.recovery import (
    failures_as_target_unavailable,
    plain_context,
    read_identity,
    refuse_staged,
    sync_adopted,
)


@dataclass(frozen=True, slots=True)
class Adoption:
    """What Spark has left here. `in_flight` is the epoch that was begun and not decided, None where there is none."""

    context: RunContext
    decided: int
    in_flight: int | None
    fingerprint: Fingerprint | None
    lines: tuple[str, ...]
    directory_id: str
    query: str | None


def propose_adoption(
    *,
    name: JobName,
    sinks: tuple[AnySink, ...],
    storage: Storage,
    decisions: DecisionLog,
    directory_id: str,
    clock: Clock,
    query: str | None,
) -> Adoption:
    """Look at what is there. Writes nothing."""
    if read_identity(storage) is not None:
        raise ConfigurationError("onceward runs on this checkpoint already", hint="`onceward status` shows its epochs")
    decided, planned, fingerprint = _stands_at(decisions)
    if max(planned, decided) < 0:
        raise ConfigurationError(
            "Spark has begun nothing on this checkpoint", hint="give the checkpointLocation of the query; or just start"
        )
    context = plain_context(name=name, sinks=sinks, storage=storage, decisions=decisions, clock=clock)
    refuse_staged(context)
    with failures_as_target_unavailable():
        held = {str(receipt.sink) for sink in sinks for receipt in sink.receipts(context.job)}
        two_phase = [sink for sink in sinks if isinstance(sink, TwoPhaseCommitSink)]
        held |= {str(sink.name) for sink in two_phase if sink.pending_of_job(name)}
    if held:
        raise CheckpointUnknown(
            f"sink {', '.join(sorted(held))} has receipts or transactions of a job {name!r}: its folder onceward/ was "
            "lost, or another job has this name",
            hint="restore the folder from a backup, or rename this job; a start says what else can be done",
        )
    in_flight = planned if planned > decided else None
    lines = [_told(f"the query {query}" if query else "a query", decisions, decided)]
    if in_flight is not None:
        begun = decisions.barrier(in_flight)
        at = f" at {begun.timestamp:%Y-%m-%d %H:%M:%S} UTC" if begun else ""
        lines.append(
            f"epoch {in_flight} was begun{at} and not decided: its rows may be in the target in whole, in part, or not "
            "at all, and nothing here tells which"
        )
    return Adoption(context, decided, in_flight, fingerprint, tuple(lines), directory_id, query)


def _stands_at(decisions: DecisionLog) -> tuple[int, int, Fingerprint | None]:
    """What is decided and planned, and which rows the newest epoch has."""
    try:
        decided, planned = decisions.decided(), decisions.planned()
        newest = decisions.barrier(planned)
    except DamagedFile as torn:
        raise DamagedFile(
            torn.message,
            epoch=torn.epoch,
            hint="the query may have written rows for that epoch: look for them in the target. Then restore the entry, "
            "or remove it and its .crc: the epoch runs again, and is delivered whole",
        ) from None
    return decided, planned, newest.fingerprint if newest else None


def _told(who: str, decisions: DecisionLog, decided: int) -> str:
    if decided < 0:
        return f"{who} has decided nothing here yet"
    last = decisions.barrier(decided)
    at = f", the last one of {last.timestamp:%Y-%m-%d %H:%M:%S} UTC" if last else ""
    return f"{who} has decided the epochs up to {decided} here{at}: they stay with whoever delivered them"


def consequences(found: Adoption, *, skips_in_flight: bool) -> Sequence[str]:
    """What follows from taking it over so."""
    first = found.decided + 1
    sinks = ", ".join(repr(str(sink.name)) for sink in found.context.sinks)
    stopped = "the query must never be started again, by anybody: what it delivers from now on, onceward delivers too"
    if found.in_flight is None:
        return [f"onceward delivers from epoch {first} on, to {sinks}", stopped]
    if skips_in_flight:
        return [
            f"epoch {found.in_flight} counts as delivered: Spark computes it again, and none of its rows is written; "
            "what the target lacks of it, it will never have",
            f"onceward delivers from epoch {first + 1} on, to {sinks}",
            stopped,
        ]
    return [
        f"epoch {found.in_flight} is delivered whole: what the target has of it already is there twice, unless the "
        "sink upserts or replaces, or those rows are removed before",
        f"onceward delivers from epoch {first} on, to {sinks}",
        stopped,
    ]


def adopt(found: Adoption, *, skips_in_flight: bool, by: str, at: datetime, because: str) -> IdentityRecord:
    """Write it down. After a crash in between: give it again."""
    context, lines = found.context, (*found.lines, *consequences(found, skips_in_flight=skips_in_flight))
    planned = found.in_flight if found.in_flight is not None else found.decided
    if _stands_at(context.decisions) != (found.decided, planned, found.fingerprint):
        raise ConfigurationError(
            "the query has gone on meanwhile: what was shown no longer holds", hint="stop it for good, and begin again"
        )
    sync_adopted(context.decisions)
    if skips_in_flight and found.in_flight is not None:
        skipped = propose_epoch_is_published(context, epoch=found.in_flight)
        record(context.storage, replace(skipped, lines=lines), by=by, at=at, because=because)
    job = context.job
    identity = IdentityRecord(0, job.name, job.generation, (), found.decided, found.directory_id, found.query)
    said = Resolution(Kind.IDENTITY, job.generation, by="", at=at, because="")
    write_identity(context.storage, NewIdentity(Proposal(said, lines), identity), by=by, at=at, because=because)
    return identity
