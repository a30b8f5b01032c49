"""`onceward doctor`: look at a job, its servers and its checkpoint before it starts."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from onceward.cli.load import file_of, load_job
from onceward.cli.session import spark_log, spark_session
from onceward.cli.show import out, show_json
from onceward.contracts import Severity

_SIGNS = {
    Severity.OK: "[green]✓ ok[/]     ",
    Severity.WARNING: "[yellow]! warning[/]",
    Severity.ERROR: "[bold red]✗ error[/]  ",
}


def doctor(
    target: Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="A Python file that defines a Job.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check servers, permissions, tables, columns, disk and checkpoint; say what fixes what is wrong. Ends with 2 if
    the job would not start."""
    job = load_job(target)
    from onceward.doctor import examine

    found = []
    with spark_log(job.name) as log_file:
        spark = spark_session(f"doctor of {job.name}", job_file=file_of(target), log_file=log_file)
        for finding in examine(job, spark):
            found.append(finding)
            if not json:
                out.print(f"{_SIGNS[finding.severity]} [bold]{escape(finding.about)}[/]: {escape(finding.detail)}")
                if finding.fix:
                    out.print(f"           [cyan]fix[/]: {escape(finding.fix)}")
    if json:
        show_json([{"about": f.about, "severity": f.severity.value, "detail": f.detail, "fix": f.fix} for f in found])
    if any(finding.severity is Severity.ERROR for finding in found):
        raise typer.Exit(2)
