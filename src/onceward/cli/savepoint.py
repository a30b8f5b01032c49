"""`onceward savepoint`: take a savepoint of a job, look at savepoints, restore one, remove one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from onceward.cli.bytes_bar import BytesBar
from onceward.cli.commands import Commands
from onceward.cli.savepoint_restore import restore
from onceward.cli.savepoint_take import take
from onceward.cli.show import out, show_bytes, show_json
from onceward.savepoints import Progress, Savepoint, list_savepoints, read_savepoint, verify_savepoint
from onceward.savepoints import dispose as dispose_savepoint
from onceward.storage import local_path

savepoint = Commands(help="Sealed copies of a checkpoint: take, look, restore, remove.")

SavepointArgument = Annotated[str, typer.Argument(metavar="SAVEPOINT", help="The directory of a savepoint.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

savepoint.command()(take)


@savepoint.command("list")
def list_(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder that savepoints are taken into.")],
    json: Json = False,
) -> None:
    """List the savepoints in a folder, the oldest first. Their files are not read."""
    found = list_savepoints(local_path(folder))
    if json:
        described = [
            {"path": str(one.path), "problem": one.problem, "savepoint": one.savepoint and as_json(one.savepoint)}
            for one in found
        ]
        show_json(described)
        return
    if not found:
        out.print("there is no savepoint in this folder")
        return
    table = Table("savepoint", "job", "epoch", "taken (UTC)", "files", "bytes")
    for one in found:
        if (saved := one.savepoint) is None:
            table.add_row(escape(one.path.name), f"[red]{escape(one.problem or '')}[/]")
        else:
            cells = (str(saved.epoch), f"{saved.taken_at:%Y-%m-%d %H:%M:%S}", f"{len(saved.files):,}")
            table.add_row(escape(one.path.name), escape(saved.job), *cells, show_bytes(saved.size))
    out.print(table)


@savepoint.command()
def show(path: SavepointArgument, json: Json = False) -> None:
    """Show what a savepoint says of itself. Its files are not read."""
    saved = read_savepoint(local_path(path))
    if json:
        show_json(as_json(saved))
        return
    out.print(f"[bold]{escape(saved.job)}[/] after epoch {saved.epoch}, generation {saved.generation}")
    out.print(
        f"  taken {saved.taken_at:%Y-%m-%d %H:%M:%S} UTC by onceward {saved.onceward}, Spark {escape(saved.spark)}"
    )
    out.print(f"  from {escape(saved.origin)}")
    out.print(f"  {len(saved.files):,} files, {show_bytes(saved.size)}; guarantee {_guarantee(saved)}")
    if saved.parent is not None:
        came = saved.parent
        out.print(f"  its checkpoint came from savepoint {came.savepoint}, epoch {came.epoch} of {came.generation}")
    for name, total in saved.sinks.items():
        out.print(f"  sink {escape(name)}: {total.rows:,} rows in that epoch, by {escape(total.mechanism)}")
    for operator in saved.topology.operators:
        out.print(f"  state {operator.number}: {escape(str(operator))}, {operator.partitions} partitions")
    for line in saved.barrier.split("\n")[2:]:
        out.print(f"  [dim]ends at[/] {escape(line)}")


@savepoint.command()
def verify(path: SavepointArgument, json: Json = False) -> None:
    """Read every file of a savepoint and compare it with its checksum."""
    progress = Progress()
    with BytesBar("verifying", lambda: progress, quiet=json):
        saved, wrong = verify_savepoint(local_path(path), progress)
    if json:
        findings = [{"about": one.about, "detail": one.detail, "fix": one.fix} for one in wrong]
        show_json({"id": saved.id, "epoch": saved.epoch, "whole": not wrong, "findings": findings})
    elif wrong:
        # Not a table: a file's name is there to be copied, whole, at every width.
        for one in wrong:
            out.print(f"[red]error[/] [bold]{escape(one.about)}[/]: {escape(one.detail)}")
            out.print(f"      [cyan]fix[/]: {escape(one.fix or '-')}")
        out.print("[red]this savepoint is damaged[/]: it cannot be restored")
    else:
        out.print(f"[green]whole[/]: {len(saved.files):,} files, {show_bytes(saved.size)}, after epoch {saved.epoch}")
    if wrong:
        raise typer.Exit(1)


savepoint.command()(restore)


@savepoint.command()
def dispose(path: SavepointArgument, json: Json = False) -> None:
    """Remove a savepoint. What is not one is refused; given again after a crash, it finishes."""
    # Not resolved: a link must not lead to something else that is then removed.
    gone = dispose_savepoint(local_path(path, follows_links=False))
    if json:
        show_json({"disposed": gone.id if gone is not None else None})
        return
    what = (
        f"savepoint {gone.id} of {escape(gone.job)}, epoch {gone.epoch}" if gone is not None else "what was left of it"
    )
    out.print(f"[green]removed[/] {what}")


def as_json(saved: Savepoint) -> dict[str, Any]:
    """A savepoint for scripts; of its files only how many they are."""
    document = {
        name: getattr(saved, name) for name in Savepoint.__slots__ if name not in ("files", "topology", "sinks")
    }
    document["parent"] = None if saved.parent is None else asdict(saved.parent)
    document["guarantee"] = None if saved.guarantee is None else saved.guarantee.value
    document["sinks"] = {name: asdict(total) for name, total in saved.sinks.items()}
    document["topology"] = saved.topology.as_json()
    return {**document, "files": len(saved.files), "bytes": saved.size}


def _guarantee(saved: Savepoint) -> str:
    return saved.guarantee.value if saved.guarantee is not None else "not known"
