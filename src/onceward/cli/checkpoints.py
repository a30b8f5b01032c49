"""`onceward checkpoints`: what became of every epoch of a checkpoint, from its history."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from onceward.cli.commands import Commands
from onceward.cli.show import out, show_bytes, show_json, show_seconds
from onceward.cli.verify import restore, verify
from onceward.errors import ConfigurationError
from onceward.history import (
    PHASES,
    Distribution,
    EpochRecord,
    HistoryLog,
    Summary,
    duration_s,
    phases,
    summary,
)
from onceward.journal import IdentityFile, Retention
from onceward.storage import LocalStorage, local_path

checkpoints = Commands(help="What became of every epoch; is a checkpoint whole?")

_COLOURS = {"settled": "green", "failed": "red", "open": "yellow"}
_SLOTS_SHOWN = 20
_BAR = 16

CheckpointArgument = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint directory.")]


@dataclass(frozen=True, slots=True)
class Listing:
    """As JSON: the attempts at the newest epochs, each with its phases, and a summary of all that is kept."""

    checkpoint: str
    epochs: list[dict[str, Any]]
    summary: Summary


@checkpoints.command("list")
def list_epochs(
    checkpoint: CheckpointArgument,
    last: Annotated[int, typer.Option(min=1, help="So many of the newest epochs.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Only attempts that failed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the newest epochs, and totals and percentiles over all that are kept. Works while the job runs."""
    history = _history(checkpoint)
    everything = history.outline()
    wanted = [record for record in everything if record.outcome == "failed" or not failed]
    newest = sorted({record.epoch for record in wanted})[-last:]
    shown = [record for record in wanted if newest and record.epoch >= newest[0]]
    found = summary(everything)
    if json:
        whole = history.read(first=newest[0]) if newest else []
        epochs = [_as_json(record) for record in whole if record.outcome == "failed" or not failed]
        show_json(Listing(checkpoint, epochs, found))
        return
    if not everything:
        out.print("no history yet: an epoch is written down within seconds of its end")
        return
    out.print(_epochs(shown))
    out.print(
        f"{found.epochs:,} epochs kept: {found.settled:,} settled, {found.failed:,} attempts failed; "
        f"{found.rows:,} rows, {show_bytes(found.bytes)}; {found.retries:,} deliveries repeated"
    )
    if found.distributions:
        out.print(_distributions(found.distributions))


@checkpoints.command()
def show(
    checkpoint: CheckpointArgument,
    epoch: Annotated[int, typer.Argument(metavar="N", help="The epoch.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show all that is known of one epoch: phases, slots, sinks, offsets, state, and what failed."""
    history = _history(checkpoint)
    found = history.read(first=epoch, last=epoch)
    if not found:
        known = [record.epoch for record in history.read()]
        kept = f"it has epochs {min(known)} to {max(known)}" if known else "it is empty so far"
        raise ConfigurationError(
            f"the history has nothing about epoch {epoch}",
            hint=f"{kept}; `onceward status` shows epochs that are not through yet",
        )
    if json:
        show_json([_as_json(record) for record in found])
        return
    for record in found:
        _show_attempt(record)


@checkpoints.command()
def prune(
    checkpoint: CheckpointArgument,
    keep: Annotated[str, typer.Option(help='How much to keep: a number of epochs, or a time such as "30 days".')],
) -> None:
    """Remove old history. Nothing else rests on it; a job does so by itself, by its option keep_history."""
    retention = Retention.parse(int(keep) if keep.strip().isdigit() else keep, option="--keep")
    gone = _history(checkpoint).prune(retention, datetime.now(UTC))
    out.print(f"removed {gone:,} records; files that also hold newer ones stay whole")


def _history(checkpoint: str) -> HistoryLog:
    root: Path = local_path(checkpoint)
    storage = LocalStorage(root / "onceward")
    if IdentityFile(storage).read() is None:
        raise ConfigurationError(
            f"{root} is not a checkpoint of an onceward job",
            hint="give the directory that the job has as `checkpoint`; it holds a folder named onceward",
        )
    return HistoryLog(storage)


def _as_json(record: EpochRecord) -> dict[str, Any]:
    return {**asdict(record), "duration_s": duration_s(record), "phases_s": phases(record)}


def _epochs(records: list[EpochRecord]) -> Table:
    table = Table("epoch", "outcome", "begun (UTC)", "took", "mostly", "rows", "bytes", title_justify="left")
    for record in records:
        begun = record.times.get("begun") or min(record.times.values(), default=None)
        taken = {phase: took for phase, took in phases(record).items() if phase != "alignment"}
        longest = max(taken, key=lambda phase: taken[phase], default="-")
        table.add_row(
            str(record.epoch),
            f"[{_COLOURS[record.outcome]}]{record.outcome}[/]",
            f"{begun:%m-%d %H:%M:%S}" if begun else "-",
            show_seconds(duration_s(record)),
            f"{longest} {show_seconds(taken[longest])}" if taken else "-",
            f"{record.rows:,}",
            show_bytes(record.bytes),
        )
    return table


def _distributions(found: dict[str, Distribution]) -> Table:
    table = Table("", "min", "mean", "max", "p50", "p90", "p99")
    for name, one in found.items():
        shown = _unit(name)
        table.add_row(name, *(shown(value) for value in (one.min, one.mean, one.max, one.p50, one.p90, one.p99)))
    return table


def _unit(name: str) -> Any:
    if name in ("bytes", "state_bytes"):
        return show_bytes
    return (lambda value: f"{value:,.0f}") if name == "rows" else show_seconds


def _show_attempt(record: EpochRecord) -> None:
    out.print(
        f"[bold]epoch {record.epoch}[/]: [{_COLOURS[record.outcome]}]{record.outcome}[/] in "
        f"{show_seconds(duration_s(record))}  [dim]run {record.run}, takeover {record.takeover}, "
        f"{record.guarantee or 'guarantee not known'}[/]"
    )
    if record.error:
        out.print(f"  [red]{escape(record.error)}[/]: {escape(record.why)}")
    out.print(_phases(record))
    for step, at in record.times.items():
        out.print(f"  [dim]{step:<13} {at:%Y-%m-%d %H:%M:%S.%f} UTC[/]")
    if record.sinks:
        out.print(_sinks(record))
    if record.slots:
        out.print(_slots(record))
    for source, end in record.sources.items():
        out.print(f"  [dim]ends at[/] {escape(end)} [dim]in {escape(source)}[/]")
    for size in record.state:
        out.print(f"  state of {escape(size.name)}: {size.rows:,} rows, {show_bytes(size.bytes)}")


def _phases(record: EpochRecord) -> Table:
    taken = phases(record)
    longest = max(taken.values(), default=0.0) or 1.0
    table = Table.grid("phase", "took", "bar", "meaning", padding=(0, 1))
    table.columns[1].justify = "right"
    for phase, took in taken.items():
        bar = "█" * max(1, round(_BAR * took / longest)) if took else ""
        table.add_row(f"  {phase}", show_seconds(took), f"[cyan]{bar}[/]", f"[dim]{PHASES[phase]}[/]")
    return table


def _sinks(record: EpochRecord) -> Table:
    table = Table("sink", "rows", "slots", "took", "repeated", "last failure")
    for name, sink in record.sinks.items():
        took = (sink.delivered_at - sink.began_at).total_seconds() if sink.delivered_at and sink.began_at else None
        cells = (f"{sink.rows:,}", str(sink.slots), show_seconds(took), str(sink.retries), escape(sink.failure))
        table.add_row(escape(name), *cells)
    return table


def _slots(record: EpochRecord) -> Table:
    more = f", the first {_SLOTS_SHOWN}" if record.slot_count > _SLOTS_SHOWN else ""
    table = Table("slot", "rows", "bytes", "acknowledged", "host", title=f"{record.slot_count} slots{more}")
    for slot in record.slots[:_SLOTS_SHOWN]:
        at = f"{slot.acked_at:%H:%M:%S.%f}"[:-3] if slot.acked_at else "-"
        table.add_row(str(slot.slot), f"{slot.rows:,}", show_bytes(slot.bytes), at, escape(slot.host))
    return table


checkpoints.command()(verify)
checkpoints.command()(restore)
