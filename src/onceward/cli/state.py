"""`onceward state`: what a job keeps from one epoch to the next, as rows, from a checkpoint or a savepoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from onceward.cli.session import spark_log, spark_session
from onceward.cli.show import out, show_json
from onceward.errors import ConfigurationError
from onceward.storage import local_path

if TYPE_CHECKING:
    from onceward.observe.state_views import StateView

state = typer.Typer(no_args_is_help=True, help="Keys and values of a job's state: show or export them.")

Where = Annotated[str, typer.Argument(metavar="SAVEPOINT|CHECKPOINT", help="The directory of either.")]
Operator = Annotated[str | None, typer.Option(help="Only this one, by its name or its number.")]
Key = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Only entries with this key; may be given again.")
]
Epoch = Annotated[int | None, typer.Option(help="Of a checkpoint: at the end of this epoch, not the newest.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@state.command()
def show(
    path: Where,
    operator: Operator = None,
    key: Key = None,
    epoch: Epoch = None,
    rows: Annotated[int, typer.Option(min=1, help="So many rows of each operator, the first by key.")] = 10,
    json: Json = False,
) -> None:
    """Start a Spark and show keys and values, both sides of a join, variables and timers. Works while the job runs."""
    from onceward.observe.state import columns_of, first_rows
    from onceward.observe.state_export import state_of, with_key
    from onceward.observe.state_views import frame_of

    with spark_log("state") as log_file, state_of(local_path(path), operator=operator, epoch=epoch) as found:
        spark = spark_session("onceward state", log_file=log_file)
        shown = []
        for view in found.views:
            frame = with_key(frame_of(spark, found.root, view, found.epoch), key or ())
            told = first_rows(frame, rows + 1)
            shown.append((view, columns_of(frame), told[:rows], len(told) > rows))
    if json:
        show_json({"epoch": found.epoch, "state": [_as_json(*one) for one in shown]})
        return
    out.print(f"[bold]state at the end of epoch {found.epoch}[/]")
    for view, columns, told, has_more in shown:
        out.print(f"[bold]{escape(view.label)}[/] [dim]{escape(view.operator.kind)}[/] ({escape(', '.join(columns))})")
        for row in told:
            out.print(f"  {escape(row)}")
        if not told:
            out.print("  [dim]empty[/]")
        elif has_more:
            out.print("  …")


@state.command()
def export(
    path: Where,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A directory that does not exist yet.")],
    operator: Operator = None,
    key: Key = None,
    epoch: Epoch = None,
    format: Annotated[str, typer.Option(help="Of the files: parquet.")] = "parquet",
    json: Json = False,
) -> None:
    """Write state to Parquet files: a folder for each operator, side of a join, variable, and for timers."""
    if format != "parquet":
        raise ConfigurationError(f"--format {format} is unknown", hint="parquet is all there is")
    from onceward.observe.state_export import export_state, state_of

    with spark_log("state") as log_file, state_of(local_path(path), operator=operator, epoch=epoch) as found:
        spark = spark_session("onceward state", log_file=log_file)
        rows = export_state(spark, found, local_path(target), keys=key or ())
    if json:
        show_json({"epoch": found.epoch, "target": str(local_path(target)), "rows": rows})
        return
    for name, count in rows.items():
        out.print(f"[green]exported[/] {count:,} rows: {escape(str(local_path(target) / name))}")


@state.command(hidden=True)
def answer() -> None:
    """Start a Spark, then answer questions, a JSON object a line each, until standard input ends: for the dashboard."""
    from onceward.cli.state_answers import answer_questions

    answer_questions()


def _as_json(view: StateView, columns: list[str], told: tuple[str, ...], has_more: bool) -> dict[str, object]:
    one = view.operator
    return {
        "operator": one.number,
        "name": one.name,
        "kind": one.kind,
        "part": view.part or None,
        "columns": columns,
        "rows": list(told),
        "has_more": has_more,
    }
