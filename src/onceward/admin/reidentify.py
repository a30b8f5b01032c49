"""A checkpoint whose identity can no longer be read: what it and its targets hold tells which generation it is."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime

from onceward.admin.resolve import Proposal, record
from onceward.contracts import AnySink, Clock, DecisionLog, Storage, TwoPhaseCommitSink
from onceward.errors import ConfigurationError, DamagedFile
from onceward.identity import Generation, JobIdentity, JobName, TransactionName, new_generation
from onceward.journal import IdentityFile, IdentityRecord, Kind, Register, Resolution, SettledLog
from onceward.wal import FOLDER as WAL_FOLDER


@dataclass(frozen=True, slots=True)
class NewIdentity:
    """The record that would be written, and what follows from it."""

    proposal: Proposal
    identity: IdentityRecord


def propose_identity(
    *,
    name: JobName,
    sinks: tuple[AnySink, ...],
    storage: Storage,
    decisions: DecisionLog,
    directory_id: str,
    clock: Clock,
    generation: str | None = None,
) -> NewIdentity:
    """Find out which generation this checkpoint is, unless it is given. Writes nothing."""
    file = IdentityFile(storage)
    past = file.history()
    # An older record tells of the savepoint. What it accepted of its ancestors may be less than what cannot be read
    # did: then it is asked for once more.
    restored = past[-1].restored if past else None
    ancestors = set(restored.ancestors) if restored is not None else set()
    staged, in_targets = _staged(storage, name), _in_targets(sinks, name)
    candidates = staged or in_targets - ancestors
    if generation is None and len(candidates) > 1:
        listed = ", ".join(sorted(candidates))
        raise ConfigurationError(
            f"the checkpoint and its targets tell of more than one generation: {listed}",
            hint="say with --generation which one this checkpoint is; `onceward transactions list` of a copy may tell",
        )
    chosen = Generation(generation) if generation else next(iter(candidates), new_generation())
    known = {*in_targets, *(g for one in past for g in (one.generation, *one.known))} - {chosen}
    adopted = _adopted(storage, decisions, past)
    wanted = IdentityRecord(
        file.next_number(), name, chosen, tuple(sorted(known)), adopted, directory_id, restored=restored
    )
    told = (
        "what is staged" if staged else "the receipts in the targets" if candidates else "nothing, so it is a new one"
    )
    lines = [
        f"this checkpoint is written down anew as that of the job {name!r}, generation {chosen} (told by {told})",
        f"epochs up to {adopted} count as delivered before",
    ]
    if restored is not None:
        lines.append(f"it was restored from savepoint {restored.savepoint}, after epoch {restored.epoch}")
    if known:
        lines.append(f"output of other generations in the targets is accepted: {', '.join(sorted(known))}")
    said = Resolution(Kind.IDENTITY, chosen, by="", at=clock.now(), because="")
    return NewIdentity(Proposal(said, tuple(lines)), wanted)


def write_identity(storage: Storage, new: NewIdentity, *, by: str, at: datetime, because: str) -> None:
    """The record of who said so first, then the identity. After a crash in between: give it again."""
    record(storage, new.proposal, by=by, at=at, because=because)
    if IdentityFile(storage).create(new.identity) != new.identity:
        raise ConfigurationError("someone else has just written an identity", hint="look at `onceward status`")


def _staged(storage: Storage, name: JobName) -> set[Generation]:
    """What manifests, segments and the newest marker of this checkpoint say. They are its own, whatever the targets
    hold."""
    found, register, settled = set(), Register(storage), SettledLog(storage)
    with contextlib.suppress(DamagedFile):
        marker = settled.marker(settled.watermark())
        if marker is not None and marker.manifest is not None:
            found.add(marker.manifest.job.generation)
    for epoch, files in register.epochs().items():
        for takeover in files.manifests:
            try:
                manifest = register.manifest(epoch, takeover)
            except DamagedFile:
                continue
            if manifest is not None and manifest.job.name == name:
                found.add(manifest.job.generation)
    for epoch_folder in storage.names(WAL_FOLDER):
        for file in storage.names(f"{WAL_FOLDER}/{epoch_folder}"):
            segment = TransactionName.parse(file.removesuffix(".arrow"))
            if segment is not None and segment.is_of_job(name):
                found.add(segment.generation)
    return found


def _in_targets(sinks: tuple[AnySink, ...], name: JobName) -> set[Generation]:
    anyone = JobIdentity(name, new_generation())
    found = {receipt.generation for sink in sinks for receipt in sink.receipts(anyone)}
    for sink in sinks:
        if isinstance(sink, TwoPhaseCommitSink):
            names = (TransactionName.parse(str(handle["transaction"])) for handle in sink.pending_of_job(name))
            found |= {one.generation for one in names if one is not None}
    return found


def _adopted(storage: Storage, decisions: DecisionLog, past: tuple[IdentityRecord, ...]) -> int:
    """Every unsettled epoch has a manifest: what has neither that nor a marker above it came before onceward."""
    if past:
        return past[-1].adopted
    if SettledLog(storage).epochs():
        return -1
    begun = Register(storage).epochs()
    return min([decisions.decided(), *(epoch - 1 for epoch in begun)])
