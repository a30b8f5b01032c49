"""The command itself: gathers the subcommands and turns every error into a message, a hint and an exit code.

Exit codes: 0 done, 1 failed for good, 2 usage, 3 may be restarted, 4 fenced by another driver.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Final

import typer

from onceward import __version__
from onceward.cli.commands import Commands
from onceward.cli.show import out, show_error

COMMANDS: Final = (
    "init",
    "run",
    "status",
    "state",
    "stop",
    "checkpoints",
    "savepoint",
    "dashboard",
    "doctor",
    "adopt",
    "transactions",
    "poison",
    "resolve",
    "recover",
    "replay",
    "rewind",
    "demo",
)
"""Each is a function, or a group of them, of that name in the module of that name."""


def command_with(names: Iterable[str]) -> typer.Typer:
    """The command with these subcommands. Their modules are imported here: some take half a second for PySpark."""
    app = Commands(
        name="onceward",
        help="Exactly-once delivery from Spark Structured Streaming to systems outside Spark.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(root)
    for name in names:
        found = getattr(import_module(f"onceward.cli.{name}"), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command()(found)
    return app


def show_version(wanted: bool) -> None:
    """Print it and end, where it is asked for."""
    if wanted:
        out.print(f"onceward {__version__}", highlight=False)
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Exactly-once delivery from Spark Structured Streaming to systems outside Spark."""


def main() -> None:
    """Run the command and exit."""
    as_json = "--json" in sys.argv
    wanted = [name for name in sys.argv[1:2] if name in COMMANDS]
    try:
        command_with(wanted or COMMANDS)()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        from onceward.spark.cause import exit_code_of

        exit_code = exit_code_of(error)
        show_error(error, as_json=as_json, exit_code=exit_code)
        sys.exit(exit_code)
