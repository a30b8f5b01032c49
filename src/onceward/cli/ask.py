"""Asking before something is done for good, and who says so."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.markup import escape

from onceward.cli.show import err
from onceward.errors import ConfigurationError

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, for scripts; --because is needed then.")]
Because = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; it is kept in the checkpoint.")]


def who() -> str:
    """The user and the host, as the system knows them."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def ask(lines: Iterable[str], *, yes: bool, because: str | None) -> str:
    """Show what will be done, and have it confirmed; the reason that was given. Ends the command if it is not."""
    for line in lines:
        err.print(escape(line))
    if yes:
        if not (because or "").strip():
            raise ConfigurationError("--yes needs a reason", hint="add --because TEXT: it is kept in the checkpoint")
        return str(because)
    err.print("[bold]Make sure that the job is not running.[/]")
    if not typer.confirm("Go on?", err=True):
        raise typer.Exit(1)
    return because or typer.prompt("Why?", err=True)
