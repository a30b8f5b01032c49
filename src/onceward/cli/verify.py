"""`onceward checkpoints verify` and `restore`: is a checkpoint whole, and back to an epoch from which it is.

What they do is imported when they do it: `onceward checkpoints list` beside them need not wait for it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from onceward.cli.ask import Because, Yes, ask, who
from onceward.cli.show import out, show_json
from onceward.clock import SystemClock
from onceward.contracts import Guarantee, Receipt, Severity
from onceward.errors import ConfigurationError
from onceward.storage import local_path

if TYPE_CHECKING:
    from onceward.verify import Report, Targets

Checkpoint = Annotated[str, typer.Argument(help="The job's checkpoint directory.")]
JobFile = Annotated[
    str | None, typer.Option(metavar="FILE[:JOB]", help="The job, so that receipts in its targets are looked at.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_COLOURS = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "red"}


def verify(
    checkpoint: Checkpoint,
    job: JobFile = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only Spark's logs and our small files, not the state.")
    ] = False,
    json: Json = False,
) -> None:
    """Read a whole checkpoint, also while its job runs, and say whether it can be resumed. Changes nothing."""
    from onceward.verify import verify as verify_checkpoint

    targets = _asker(checkpoint, job) if job is not None else None
    report = verify_checkpoint(local_path(checkpoint), clock=SystemClock(), quick=quick, targets=targets)
    if json:
        show_json(_as_json(report))
    else:
        _show(report)
    if not report.is_resumable:
        raise typer.Exit(1)


def restore(
    checkpoint: Checkpoint,
    epoch: Annotated[int, typer.Option(help="The newest epoch that stays; the next one runs again.")],
    job: JobFile = None,
    accept: Annotated[
        str | None, typer.Option(metavar="rollback", help="Rows that are published may be delivered a second time.")
    ] = None,
    yes: Yes = False,
    because: Because = None,
    json: Json = False,
) -> None:
    """Take a stopped checkpoint back to an earlier epoch. What comes after it is moved aside, not removed."""
    from onceward.recovery import Accept
    from onceward.verify import plan_restore
    from onceward.verify import restore as restore_files

    if accept not in (None, Accept.ROLLBACK.value):
        raise ConfigurationError(f"--accept {accept} says nothing here", hint="--accept rollback is all there is")
    root, at = local_path(checkpoint), datetime.now(UTC)
    receipts = _receipts(job, checkpoint) if job is not None else ()
    plan = plan_restore(root, epoch, now=at, receipts=receipts, accepts_rollback=accept is not None)
    lines = [
        f"epoch {epoch} becomes the newest decided one; {len(plan.moves)} files go to onceward/{plan.folder}",
        plan.consequence,
    ]
    why = ask(lines, yes=yes, because=because)
    restore_files(root, plan, by=who(), at=at, because=why)
    if json:
        show_json(
            {"epoch": epoch, "moved": list(plan.moves), "to": f"onceward/{plan.folder}", "repeated": plan.repeated}
        )
        return
    out.print(f"[green]restored[/] to epoch {epoch}; what came after it is in {escape(f'onceward/{plan.folder}')}")
    if plan.repeated is not None:
        out.print("the next start is refused unless it is given --accept rollback")


def _receipts(target: str, checkpoint: str) -> tuple[Receipt, ...]:
    from onceward.cli.load import load_job
    from onceward.job import job_receipts

    return job_receipts(load_job(target), checkpoint)


def _asker(checkpoint: str, target: str) -> Targets:
    """Only who names a job has to wait for PySpark."""
    from onceward.cli.load import load_job
    from onceward.job import chosen_sinks, inspect_job_checkpoint

    job = load_job(target)
    sinks = chosen_sinks(job.sinks, Guarantee(job.guarantee))
    return lambda: inspect_job_checkpoint(checkpoint, sinks, frozenset(), job.name, job.publish_limits)


def _show(report: Report) -> None:
    # Not a table: a file's name is there to be copied, whole, at every width.
    for one in report.findings:
        out.print(
            f"[{_COLOURS[one.severity]}]{one.severity.value:<7}[/] [bold]{escape(one.about)}[/]: {escape(one.detail)}"
        )
        if one.fix:
            out.print(f"        [cyan]fix[/]: {escape(one.fix)}")
    colour = "green" if report.is_resumable else "red"
    out.print(f"[{colour}]{escape(report.verdict)}[/]")
    if report.is_quick and report.is_resumable:
        out.print("[dim]the state and the segments' checksums were not looked at: leave out --quick[/]")


def _as_json(report: Report) -> dict[str, object]:
    candidate = report.candidate
    return {
        "checkpoint": report.checkpoint,
        "resumable": report.is_resumable,
        "decided": report.decided,
        "published": report.published,
        "restore_to": candidate.epoch if candidate is not None else None,
        "repeated": candidate.repeated if candidate is not None else None,
        "quick": report.is_quick,
        "receipts_looked_at": report.has_asked_targets,
        "verdict": report.verdict,
        "findings": [
            {"about": one.about, "severity": one.severity.value, "detail": one.detail, "fix": one.fix}
            for one in report.findings
        ],
    }
