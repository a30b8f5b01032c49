"""`onceward demo`: the page-view job under SIGKILL, beside a naive one."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from onceward.cli.show import show_json


def demo(
    kills: Annotated[int, typer.Option(min=1, max=100, help="How often the driver is killed.")] = 5,
    seed: Annotated[int | None, typer.Option(help="Replays the moments of the kills.")] = None,
    keep: Annotated[str | None, typer.Option(metavar="DIR", help="Work in DIR and leave it there.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it in a browser while drivers are killed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Count page views per app into SQLite and Parquet while the driver is killed again and again."""
    from onceward.demo import play

    # So that the driver is ended with us, whichever way we are told to end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    result = play(kills=kills, seed=seed, folder=keep, quiet=json, watch=watch)
    if json:
        show_json(result)
    raise typer.Exit(0 if result.clean else 1)
