"""Reading a whole checkpoint without Spark, also while its job runs.

A job that runs writes new files and purges old ones meanwhile. So nothing is called damaged by one look: a second one
begins anew from the newest epoch, and only what both find is believed. A file that was purged is needed by the first
look only; one that is damaged stays so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from onceward.contracts import Clock, Finding, Log, Receipt, Severity
from onceward.epoch import RunContext
from onceward.errors import ConfigurationError, OncewardError, StorageFailed
from onceward.identity import fingerprint_of
from onceward.recovery import Plan
from onceward.recovery.repair import DropList, Repair, describe_repair, known_entries, plan_repairs
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage
from onceward.verify.files import Files
from onceward.verify.logs import Logs, read_logs, repaired, unneeded_findings
from onceward.verify.ours import OurFinding, Ours, our_findings, plan_findings, read_ours
from onceward.verify.report import MOVE, Candidate, Report
from onceward.verify.resume import View, needed_entries, newest_point, point_after, resume_findings

Targets = Callable[[], Plan]
"""Asks a job's targets: the plan that its next start would make."""

LOOKS: Final = 20
PAUSE_S: Final = 0.1


def verify(root: Path, *, clock: Clock, quick: bool = False, targets: Targets | None = None) -> Report:
    """What is wrong with the checkpoint, if anything. Changes nothing."""
    before: Report | None = None
    for _ in range(LOOKS):
        report = look(root, quick=quick, targets=targets)
        if report.is_resumable:
            return report
        if before is not None and (lasting := before.errors & report.errors):
            kept = (one for one in report.findings if one.severity is not Severity.ERROR or one in lasting)
            return replace(report, findings=tuple(kept))
        before = report
        clock.pause(PAUSE_S)
    raise StorageFailed(
        f"{root} changes faster than it can be read: in {LOOKS} looks no two found the same",
        hint="stop the job, or let Spark keep more epochs (spark.sql.streaming.minBatchesToRetain), and look again",
    )


def look(root: Path, *, quick: bool = False, targets: Targets | None = None) -> Report:
    """One look. What it finds in a checkpoint whose job runs may be nothing but the job's progress."""
    seen = see(root, quick=quick)
    point = newest_point(seen.view.logs)
    of_spark = [*resume_findings(seen.view, point)] if point is not None else []
    needed = needed_entries(seen.view.logs, point) if point is not None else frozenset[str]()
    asked = [*plan_findings(targets())] if targets is not None and seen.ours.record is not None else []
    findings = [
        *_metadata(seen.view.files, seen.ours, is_begun=point is not None),
        *of_spark,
        *seen.repairs,
        *unneeded_findings(seen.view.logs, needed),
        *(one.finding for one in seen.our_findings),
        *(one.finding for one in asked),
    ]
    if not seen.ours.is_there:
        what = "onceward has never run here: this is the checkpoint of a plain Spark query"
        findings.append(Finding("onceward", Severity.WARNING, what, "nothing; `onceward adopt` takes it over"))
    decided = point.decided if point is not None else -1
    report = Report(
        checkpoint=str(root),
        decided=decided,
        published=seen.published,
        findings=tuple(dict.fromkeys(findings)),
        is_quick=quick,
        is_ours=seen.ours.is_there,
        has_asked_targets=targets is not None,
    )
    return report if report.is_resumable or quick else replace(report, candidate=newest_candidate(seen))


@dataclass(frozen=True, slots=True)
class Seen:
    """Both halves of a checkpoint in one look; the logs as the next start leaves them."""

    view: View
    ours: Ours
    context: RunContext | None
    our_findings: tuple[OurFinding, ...]
    repairs: tuple[Finding, ...]

    @property
    def published(self) -> int:
        """The settled watermark; of a plain query nobody knows."""
        return self.context.watermark() if self.context is not None else -1


def see(root: Path, *, quick: bool = False) -> Seen:
    """Read what there is. `ConfigurationError` where there is no checkpoint at all."""
    files = Files(root)
    if not files.names("") & {"metadata", "offsets", "commits", "onceward"}:
        raise ConfigurationError(f"there is no checkpoint in {root}", hint="give the job's checkpoint directory")
    # The logs before our folder, as recovery does: what another driver settles meanwhile is then only newer.
    logs = read_logs(files, quick=quick)
    ours = read_ours(LocalStorage(root / "onceward"))
    context = ours.context(SparkLogs(root))
    repairs = _repairs(logs, context, root) if context is not None else []
    dropped = frozenset(one.path for one in repairs if isinstance(one, DropList))
    view = View(files, repaired(logs, repairs), quick, dropped)
    found = tuple(_ours(ours, context, view.logs.decided, quick=quick, is_whole=not repairs))
    told = tuple(
        Finding(_name(one), Severity.WARNING, describe_repair(one), "nothing; the next start does it")
        for one in repairs
    )
    return Seen(view, ours, context, found, told)


def _ours(ours: Ours, context: RunContext | None, decided: int, *, quick: bool, is_whole: bool) -> Iterator[OurFinding]:
    try:
        yield from our_findings(ours, context, decided, quick=quick, is_whole=is_whole)
    except OncewardError as error:
        yield OurFinding(Finding("onceward", Severity.ERROR, error.message, error.hint))


def _name(one: Repair) -> str:
    return one.path if isinstance(one, DropList) else f"{one.log.value}/{one.epoch}"


def _repairs(logs: Logs, context: RunContext, root: Path) -> list[Repair]:
    """What the next start puts right in Spark's logs before it does anything else."""
    offsets = {epoch: entry.text for epoch, entry in logs.offsets.items()}
    commits = {epoch: entry.text for epoch, entry in logs.commits.items()}
    torn_lists = SparkLogs(root).torn_lists()
    is_whole = None not in (*offsets.values(), *commits.values()) and max(commits, default=-1) in (-1, *offsets)
    if is_whole and not torn_lists:
        return []
    return plan_repairs(offsets, commits, known_entries(context), torn_lists)


def newest_candidate(seen: Seen, *, below: int | None = None) -> Candidate | None:
    """The newest earlier epoch from which everything is there and sound: the one that repeats least, too."""
    newest = newest_point(seen.view.logs)
    if newest is None or any(one.epoch is None and _is_error(one.finding) for one in seen.our_findings):
        return None
    first = (newest.decided if below is None else below) - 1
    # An epoch of ours that is lost, or whose segments are, is computed again when it comes after the one gone back to.
    for epoch in range(first, -1, -1):
        if not any(_is_error(one) for one in candidate_findings(seen, epoch)):
            return Candidate(epoch, repeated_after(seen, epoch))
    return None


def candidate_findings(seen: Seen, epoch: int) -> Iterator[Finding]:
    """What keeps the checkpoint from being taken back to this epoch."""
    logs = seen.view.logs
    if epoch not in logs.offsets or epoch not in logs.commits:
        log = Log.COMMITS if epoch in logs.offsets else Log.OFFSETS
        what = f"Spark no longer holds epoch {epoch}"
        yield Finding(f"{log.value}/{epoch}", Severity.ERROR, what, "choose another epoch, or restore a backup")
        return
    yield from resume_findings(seen.view, point_after(logs, epoch), goes_back=True)
    for one in seen.our_findings:
        if one.epoch is None or one.epoch <= epoch:
            yield one.finding


def repeated_after(seen: Seen, epoch: int, receipts: Iterable[Receipt] = ()) -> tuple[int, int] | None:
    """Which published epochs would be delivered again if `epoch` were the newest decided one.

    The very next one need not be: its barrier stays, so that it covers the same rows; when Spark runs it again they are
    consumed and staged nowhere. What comes after it is planned anew, and covers other rows.
    """
    ours = seen.ours.record
    proofs = [r for r in receipts if ours is not None and r.generation == ours.generation and r.epoch > epoch]
    last = max([seen.published, *(r.epoch for r in proofs)])
    if last <= epoch:
        return None
    is_next = last == epoch + 1 == point_after(seen.view.logs, epoch).planned
    if is_next and seen.context is not None and last > seen.context.adopted:
        marker = seen.context.settled.legible(last)
        covered = {r.fingerprint for r in proofs} | ({marker.fingerprint} if marker is not None else set())
        if covered == {fingerprint_of((seen.view.logs.offsets[last].text or "").encode())}:
            return None
    return epoch + 1, last


def _metadata(files: Files, ours: Ours, *, is_begun: bool) -> Iterator[Finding]:
    """Spark's file with nothing but the query's id, which our identity has as well."""
    checked = files.check("metadata")
    restored = "nothing; the next start writes it again, with the id that the query had"
    if not checked.exists:
        if is_begun and ours.record is not None and ours.record.query is not None:
            yield Finding("metadata", Severity.WARNING, "it is missing: it holds the query's id", restored)
        elif is_begun:
            what = "it is missing, and nothing else tells the query's id: Spark does not start without it"
            yield Finding("metadata", Severity.ERROR, what, "restore it from a backup")
        return
    try:
        document = json.loads(files.read("metadata") or b"")
        has_id = isinstance(document, dict) and isinstance(document.get("id"), str)
    except ValueError:
        severity = Severity.WARNING if ours.record is not None else Severity.ERROR
        yield Finding("metadata", severity, "it is torn or garbled", restored)
        return
    if checked.problem is not None or not has_id:
        fix = f"{MOVE}it and .metadata.crc away: the next start writes it again, with the id that the query had"
        yield Finding("metadata", Severity.ERROR, checked.problem or "it has no query's id", fix)


def _is_error(one: Finding) -> bool:
    return one.severity is Severity.ERROR
