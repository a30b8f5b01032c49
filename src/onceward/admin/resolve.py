"""The exits: what a person may say of an epoch that onceward cannot bring to an end by itself.

Each is proposed first, with what will follow from it; recording it writes one file and does nothing else. The next
start goes by it, so that a crash at any moment leaves the state before or after, and giving it again is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from onceward.contracts import Receipt, Storage
from onceward.epoch import PublishLimits, RunContext, missing
from onceward.errors import ConfigurationError, DamagedFile
from onceward.identity import Fingerprint, Generation, SinkName
from onceward.journal import Kind, Manifest, Resolution, Resolutions, SlotEntry
from onceward.journal.resolutions import describe

_NOBODY = datetime.min


@dataclass(frozen=True, slots=True)
class Proposal:
    """A resolution that nobody has signed yet, and what follows from it, in lines for people."""

    resolution: Resolution
    lines: tuple[str, ...]


def record(storage: Storage, proposal: Proposal, *, by: str, at: datetime, because: str) -> Resolution:
    """Write it down, durably, with who, when and why."""
    if not because.strip():
        raise ConfigurationError("nobody has said why", hint="say it with --because TEXT: it is kept in the checkpoint")
    signed = replace(proposal.resolution, by=by, at=at, because=because.strip(), shown=proposal.lines)
    return Resolutions(storage).create(signed)


def propose_slot_is_in(context: RunContext, *, epoch: int, sink: SinkName, slot: int) -> Proposal:
    """The slot's rows are in the target, whoever brought them there: it is left out of publishing."""
    _refuse_settled(context, epoch)
    manifest = _manifest(context, epoch)
    if manifest is None:
        raise ConfigurationError(
            f"no manifest says which slots epoch {epoch} has",
            hint=f"say it of the whole epoch: `onceward resolve epoch-is-published FILE {epoch}`",
        )
    _refuse_undecided(context, epoch)
    entry = manifest.sinks.get(sink)
    found = next((one for one in entry.slots if one.slot == slot), None) if entry is not None else None
    if found is None:
        raise ConfigurationError(
            f"epoch {epoch} has no slot {slot} in a sink {sink!r}", hint=f"it has {_slots_of(manifest)}"
        )
    lines = [
        f"epoch {epoch}, sink {sink!r}, slot {slot}: its {found.rows} rows count as being in the target",
        *_staged_lines(context, manifest, [(sink, found)]),
        "the next start does not publish it, and goes on when every other slot of the epoch has its receipt",
    ]
    said = _said(Kind.SLOT_IS_IN, manifest.job.generation, epoch=epoch, sink=sink, slot=slot)
    names = (found.transaction,)
    return Proposal(replace(said, fingerprint=manifest.fingerprint, transactions=names), tuple(lines))


def propose_epoch_is_published(context: RunContext, *, epoch: int, sink: SinkName | None = None) -> Proposal:
    """All of the epoch's rows are in the target (in one sink, or in all): none of them is published any more."""
    decided = context.decisions.decided()
    if epoch > decided:
        _refuse_unplanned(context, epoch)
    else:
        _refuse_settled(context, epoch)
    manifest = _manifest(context, epoch)
    _refuse_unknown_sink(context, manifest, sink)
    where = f"in sink {sink!r}" if sink is not None else "in every sink"
    lines = [f"every row of epoch {epoch} counts as being {where} already"]
    if manifest is not None:
        lines += _staged_lines(context, manifest, _chosen(manifest, sink))
    elif lacking := _without_receipts(context, epoch, sink):
        lines.append(f"attention: no receipt of epoch {epoch} was found in sink {lacking}")
    if epoch > decided and sink is None:
        lines.append("Spark has not decided it: when Spark runs it, its rows are consumed and staged nowhere")
    elif epoch > decided:
        lines.append(f"Spark has not decided it: Spark computes it again, and sink {sink!r} is left out of it")
    else:
        lines.append("the next start publishes nothing more of it there" + _rest(context, manifest, epoch, sink))
    said = _said(Kind.EPOCH_IS_PUBLISHED, _generation(context, manifest), epoch=epoch, sink=sink)
    return Proposal(replace(said, fingerprint=_fingerprint(context, epoch, manifest)), tuple(lines))


def propose_accept_loss(context: RunContext, *, epoch: int, sink: SinkName | None = None) -> Proposal:
    """What is not published of the epoch (in one sink, or in all) is given up."""
    _refuse_settled(context, epoch)
    manifest = _manifest(context, epoch)
    _refuse_unknown_sink(context, manifest, sink)
    is_left_behind = sink is not None and context.sink(sink) is None and manifest is not None
    if not is_left_behind:
        _refuse_undecided(context, epoch)
    where = f"in sink {sink!r}" if sink is not None else "in every sink"
    said = _said(Kind.ACCEPT_LOSS, _generation(context, manifest), epoch=epoch, sink=sink)
    said = replace(said, fingerprint=_fingerprint(context, epoch, manifest))
    if manifest is None:
        lines = [f"no manifest says what was staged for epoch {epoch}: whatever it was {where}, it is given up"]
        lines.append("the next start publishes nothing of it" + _rest(context, manifest, epoch, sink))
        return Proposal(said, tuple(lines))
    chosen = _chosen(manifest, sink)
    if not chosen:
        raise ConfigurationError(f"epoch {epoch} has no rows {where}", hint=f"it has {_slots_of(manifest)}")
    has = _whole(context, epoch)
    lost = [slot for name, slot in chosen if (name, slot.slot) not in has]
    lines = [
        f"{sum(slot.rows for slot in lost)} rows of epoch {epoch} in {len(lost)} slots {where} are given up: they will "
        "never be in the target",
        *_staged_lines(context, manifest, chosen),
    ]
    if epoch > context.decisions.decided():
        lines.append(f"Spark has not decided the epoch and runs it again, without a sink {sink!r}")
    else:
        lines.append("the next start publishes nothing more of it there" + _rest(context, manifest, epoch, sink))
    names = tuple(dict.fromkeys(slot.transaction for _, slot in chosen))
    return Proposal(replace(said, transactions=names), tuple(lines))


def propose_withdraw(context: RunContext, number: int) -> Proposal:
    """A resolution no longer holds: it was a mistake, or its file is damaged."""
    resolutions = Resolutions(context.storage)
    if not resolutions.has(number):
        raise ConfigurationError(f"there is no resolution {number}", hint="`onceward status` lists them")
    what = next((describe(one) for one in resolutions.history() if one.number == number), "it cannot be read")
    lines = (f"resolution {number} no longer holds: {what}", "what the next start does is as if it had not been given")
    return Proposal(replace(_said(Kind.WITHDRAW, context.job.generation), withdraws=number), lines)


def _said(
    kind: Kind,
    generation: Generation,
    *,
    epoch: int | None = None,
    sink: SinkName | None = None,
    slot: int | None = None,
) -> Resolution:
    return Resolution(kind, generation, by="", at=_NOBODY, because="", epoch=epoch, sink=sink, slot=slot)


def _manifest(context: RunContext, epoch: int) -> Manifest | None:
    """The manifest that counts; None where it is missing or cannot be read. A settled epoch's is in its marker."""
    if epoch <= min(context.watermark(), context.decisions.decided()):
        marker = context.settled.legible(epoch)
        return marker.manifest if marker is not None else None
    try:
        return context.register.valid_manifest(epoch)
    except DamagedFile:
        return None


def _generation(context: RunContext, manifest: Manifest | None) -> Generation:
    return manifest.job.generation if manifest is not None else context.job.generation


def _fingerprint(context: RunContext, epoch: int, manifest: Manifest | None) -> Fingerprint | None:
    if manifest is not None:
        return manifest.fingerprint
    barrier = context.decisions.barrier(epoch)
    return barrier.fingerprint if barrier is not None else None


def _chosen(manifest: Manifest, sink: SinkName | None) -> list[tuple[SinkName, SlotEntry]]:
    sinks = manifest.sinks.items()
    return [(name, slot) for name, entry in sinks if sink in (None, name) for slot in entry.slots]


def _receipts(context: RunContext, epoch: int) -> list[Receipt]:
    """What the targets have of the epoch."""
    barrier = context.decisions.barrier(epoch)
    return [
        receipt
        for receipt in context.receipts()
        if receipt.epoch == epoch and (barrier is None or receipt.fingerprint == barrier.fingerprint)
    ]


def _whole(context: RunContext, epoch: int) -> set[tuple[SinkName, int]]:
    """The slots that they prove to have."""
    return {(one.sink, one.slot) for one in _receipts(context, epoch) if one.is_whole}


def _without_receipts(context: RunContext, epoch: int, sink: SinkName | None) -> str:
    has = {receipt.sink for receipt in _receipts(context, epoch)}
    asked = [one.name for one in context.sinks if sink in (None, one.name)]
    return ", ".join(repr(str(name)) for name in asked if name not in has)


def _staged_lines(context: RunContext, manifest: Manifest, chosen: Iterable[tuple[SinkName, SlotEntry]]) -> list[str]:
    """What the targets say of these slots."""
    has = _whole(context, manifest.epoch)
    lines = []
    for name, slot in chosen:
        proof = "the target has its receipt" if (name, slot.slot) in has else "the target has no receipt of it"
        lines.append(f"  sink {name!r}, slot {slot.slot}: {slot.rows} rows as {slot.transaction}; {proof}")
    lines.append("  what is still staged of it is removed after the epoch is settled, and never published")
    return lines


def _rest(context: RunContext, manifest: Manifest | None, epoch: int, sink: SinkName | None) -> str:
    """What else must be there before the epoch is settled."""
    if epoch <= context.watermark():
        return ", and no longer misses it"
    names = manifest.sinks if manifest is not None else [one.name for one in context.sinks]
    others = [name for name in names if name != sink]
    if sink is None or not others:
        return f", and epoch {epoch} is settled"
    listed = ", ".join(repr(str(name)) for name in others)
    if manifest is not None:
        return f"; sink {listed} gets its share as before"
    return f"; nobody can say what was staged in sink {listed} either: say something of it too"


def _slots_of(manifest: Manifest) -> str:
    listed = [f"{name!r} slot {slot.slot}" for name, slot in _chosen(manifest, None)]
    return ", ".join(listed) or "no rows at all"


def _lacks(context: RunContext, epoch: int) -> bool:
    """Whether a target that went back no longer has all of a settled epoch."""
    marker = context.settled.legible(epoch)
    keep = PublishLimits().keep_receipts
    return marker is not None and bool(missing(context, [marker], context.receipts(), keep_receipts=keep))


def _refuse_settled(context: RunContext, epoch: int) -> None:
    if epoch <= context.watermark() and not _lacks(context, epoch):
        raise ConfigurationError(
            f"epoch {epoch} is settled: nothing of it is published any more",
            hint=f"only epochs above {context.watermark()} can be resolved",
        )
    _refuse_unplanned(context, epoch)


def _refuse_unplanned(context: RunContext, epoch: int) -> None:
    newest = max(context.decisions.planned(), context.decisions.decided())
    if not 0 <= epoch <= newest:
        raise ConfigurationError(f"there is no epoch {epoch}", hint=f"the newest one is {newest}")


def _refuse_undecided(context: RunContext, epoch: int) -> None:
    if epoch > context.decisions.decided():
        raise ConfigurationError(
            f"epoch {epoch} is not decided: the next start aborts what is staged, and Spark runs it again",
            hint="start the job; there is nothing to be said of it",
        )


def _refuse_unknown_sink(context: RunContext, manifest: Manifest | None, sink: SinkName | None) -> None:
    known = {one.name for one in context.sinks} | set(manifest.sinks if manifest is not None else ())
    if sink is not None and sink not in known:
        raise ConfigurationError(
            f"neither the job nor the epoch has a sink {sink!r}",
            hint=f"there are {', '.join(sorted(repr(str(name)) for name in known))}",
        )
