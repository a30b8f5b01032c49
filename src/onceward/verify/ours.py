"""Our own folder: identity, manifests, markers, segments, and what people have said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from onceward.clock import SystemClock
from onceward.contracts import DecisionLog, Finding, Guarantee, Severity
from onceward.epoch import ReportLost, RunContext
from onceward.errors import CheckpointCopied, DamagedFile, OncewardError
from onceward.identity import new_run
from onceward.journal import (
    Diversions,
    IdentityFile,
    IdentityRecord,
    KeptLog,
    Manifest,
    Register,
    Resolutions,
    SettledLog,
)
from onceward.operators import TopologyLog
from onceward.recovery import make_plan, read_identity, take_survey
from onceward.recovery.plan import Plan, Refuse, describe
from onceward.storage import LocalStorage
from onceward.verify.removed import unfinished
from onceward.wal import is_segment, read_segment

_FOLDER = "onceward"


@dataclass(frozen=True, slots=True)
class OurFinding:
    """`epoch` is the one that it is about: going back to before it, it no longer counts. None where it always does."""

    finding: Finding
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Ours:
    """Our folder as it stands; `record` is None where it has no identity that can be read."""

    storage: LocalStorage
    record: IdentityRecord | None
    problem: OncewardError | None = None

    @property
    def is_there(self) -> bool:
        """Whether onceward has ever run here."""
        return self.storage.root.is_dir() and bool(self.storage.names(""))

    def context(self, decisions: DecisionLog) -> RunContext | None:
        """For looking; without sinks. None where it cannot be told whose it is, or what was said of it."""
        if self.record is None:
            return None
        try:
            resolved = Resolutions(self.storage).read()
        except DamagedFile:
            return None
        return RunContext(
            job=self.record.identity,
            run=new_run(),
            sinks=(),
            guarantee=Guarantee.EXACTLY_ONCE,
            storage=self.storage,
            decisions=decisions,
            clock=SystemClock(),
            adopted=self.record.adopted,
            resolved=resolved,
        )


def read_ours(storage: LocalStorage) -> Ours:
    """Reads nothing but the identity."""
    try:
        return Ours(storage, read_identity(storage))
    except OncewardError as error:
        return Ours(storage, None, error)


def our_findings(
    ours: Ours, context: RunContext | None, decided: int, *, quick: bool, is_whole: bool
) -> Iterator[OurFinding]:
    """All that is wrong with it. `is_whole`: a start plans at once, and need not put Spark's logs right before."""
    yield from _identity(ours)
    yield from _resolutions(ours.storage)
    yield from _topology(ours.storage)
    yield from _unfinished(ours.storage)
    yield from _old_files(ours.storage)
    if context is None:
        return
    try:
        yield from _diverted(context)
        if is_whole:
            yield from _plan(context)
        yield from _segments(context, decided, quick=quick)
    except OncewardError as error:
        yield _wrong(error)


def _identity(ours: Ours) -> Iterator[OurFinding]:
    if ours.problem is not None:
        yield _wrong(ours.problem)
        return
    file = IdentityFile(ours.storage)
    if ours.record is None and (Register(ours.storage).epochs() or SettledLog(ours.storage).epochs()):
        fix = "restore it from a backup; or `onceward resolve identity FILE`"
        yield OurFinding(Finding(f"{_FOLDER}/identity.json", Severity.ERROR, "it is missing", fix))
    # The newest one counts; those before it are history.
    if ours.record is not None and (older := file.next_number() - len(file.history())) > 0:
        what = f"{older} superseded identity files cannot be read"
        yield OurFinding(Finding(f"{_FOLDER}/identity.*.json", Severity.WARNING, what, "nothing: a newer one counts"))


def _resolutions(storage: LocalStorage) -> Iterator[OurFinding]:
    try:
        Resolutions(storage).read()
    except DamagedFile as error:
        yield _wrong(error)


def _topology(storage: LocalStorage) -> Iterator[OurFinding]:
    try:
        TopologyLog(storage).read()
    except DamagedFile as error:
        yield _wrong(error)


def _unfinished(storage: LocalStorage) -> Iterator[OurFinding]:
    """Between the first and the last file that a restore moves, the checkpoint is of two epochs."""
    try:
        begun = unfinished(storage)
    except DamagedFile as error:
        yield _wrong(error)
        return
    if begun is not None:
        what = f"a restore to epoch {begun.epoch} was begun and not finished"
        fix = f"give it again: `onceward checkpoints restore CHECKPOINT --epoch {begun.epoch}`"
        yield OurFinding(Finding(f"{_FOLDER}/{begun.folder}", Severity.ERROR, what, fix))


def _diverted(context: RunContext) -> Iterator[OurFinding]:
    try:
        Diversions(context.storage).all(above=context.watermark())
    except DamagedFile as error:
        yield _wrong(error, error.epoch)


def _plan(context: RunContext) -> Iterator[OurFinding]:
    """What the next start would refuse, by the very table that it goes by. The targets are not asked."""
    yield from plan_findings(make_plan(take_survey(context, known_generations=frozenset())), _FOLDER)


def plan_findings(plan: Plan, about: str = "targets") -> Iterator[OurFinding]:
    """What a plan says cannot be done. That a checkpoint is a copy keeps nobody from copying it back."""
    for step in plan.steps:
        match step:
            case Refuse(error):
                severity = Severity.WARNING if isinstance(error, CheckpointCopied) else Severity.ERROR
                yield OurFinding(Finding(about, severity, error.message, error.hint), error.epoch)
            case ReportLost(epoch, error):
                fix = (error.hint if error else None) or f"`onceward rewind CHECKPOINT {epoch}` computes it again"
                yield OurFinding(Finding(about, Severity.ERROR, f"epoch {epoch}: {describe(step)}", fix), epoch)
            case _:
                pass


def _segments(context: RunContext, decided: int, *, quick: bool) -> Iterator[OurFinding]:
    """Of decided epochs: needed until every slot has its receipt. Of kept ones: only a replay would miss them."""
    register, watermark = context.register, context.watermark()
    for epoch, files in sorted(register.epochs().items()):
        if watermark < epoch <= decided:
            # A manifest that cannot be read is in the plan already.
            with contextlib.suppress(DamagedFile):
                manifest = register.valid_manifest(epoch, files)
                if manifest is not None:
                    for one in _segments_of(context, context.resolved.without(manifest), quick=quick):
                        yield OurFinding(one, epoch)
    for epoch in sorted(context.kept.epochs()):
        marker = context.kept.legible(epoch)
        if marker is not None and marker.manifest is not None:
            for one in _segments_of(context, marker.manifest, quick=quick):
                what = f"{one.detail}; its epoch is published, and can no longer be replayed"
                yield OurFinding(Finding(one.about, Severity.WARNING, what, "nothing, unless the target goes back"))


def _segments_of(context: RunContext, manifest: Manifest, *, quick: bool) -> Iterator[Finding]:
    handles = {
        str(s.handle.get("segment")): s.handle for e in manifest.sinks.values() for s in e.slots if is_segment(s.handle)
    }
    for path, handle in sorted(handles.items()):
        try:
            if quick:
                why = context.segments.missing(handle)
                if why is not None:
                    yield Finding(
                        f"{_FOLDER}/{path}", Severity.ERROR, why, f"`onceward rewind CHECKPOINT {manifest.epoch}`"
                    )
            else:
                for _ in read_segment(context.storage, handle):
                    pass
        except (OncewardError, OSError, ValueError) as error:
            hint = getattr(error, "hint", None) or f"`onceward rewind CHECKPOINT {manifest.epoch}`"
            what = getattr(error, "message", str(error))
            yield Finding(f"{_FOLDER}/{path}", Severity.ERROR, f"{what}; its rows may not be in the target yet", hint)


def _old_files(storage: LocalStorage) -> Iterator[OurFinding]:
    """Markers and what is superfluous: a damaged one stops nothing, unless the plan says so."""
    settled, kept = SettledLog(storage), KeptLog(storage)
    for folder, epochs, read in (
        ("settled", settled.epochs(), settled.marker),
        ("published", kept.epochs(), kept.marker),
    ):
        for epoch in sorted(epochs):
            try:
                read(epoch)
            except DamagedFile as error:
                what = f"{error.message}; its name tells that the epoch is settled"
                fix = "restore it from a backup, if there is one; it does not stop a start"
                yield OurFinding(Finding(f"{_FOLDER}/{folder}/{epoch}", Severity.WARNING, what, fix))
    register = Register(storage)
    for epoch, files in sorted(register.epochs().items()):
        for takeover in sorted(files.manifests):
            try:
                register.manifest(epoch, takeover)
            except DamagedFile as error:
                name = f"{_FOLDER}/manifests/{epoch}.{takeover}.json"
                fix = "nothing, unless a line below says that it is needed"
                yield OurFinding(Finding(name, Severity.WARNING, error.message, fix))
    for epoch, files in sorted(register.epochs().items()):
        for takeover in sorted(files.fates):
            try:
                register.fate(epoch, takeover)
            except DamagedFile as error:
                name = f"{_FOLDER}/manifests/{epoch}.{takeover}.fate"
                fix = "nothing, unless a line below says that it is needed"
                yield OurFinding(Finding(name, Severity.WARNING, error.message, fix))


def _wrong(error: OncewardError, epoch: int | None = None) -> OurFinding:
    return OurFinding(Finding(_FOLDER, Severity.ERROR, error.message, error.hint), epoch)
