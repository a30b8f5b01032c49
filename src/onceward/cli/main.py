"""The command itself: gathers the subcommands and turns every error into a message, a hint and an exit code.

Exit codes: 0 done, 1 failed for good, 2 usage, 3 may be restarted, 4 fenced by another driver.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from onceward import __version__
from onceward.cli.adopt import adopt
from onceward.cli.checkpoints import checkpoints
from onceward.cli.demo import demo
from onceward.cli.doctor import doctor
from onceward.cli.init import init
from onceward.cli.poison import poison
from onceward.cli.recover import recover
from onceward.cli.replay import replay
from onceward.cli.resolve import resolve
from onceward.cli.rewind import rewind
from onceward.cli.run import run
from onceward.cli.show import out, show_error
from onceward.cli.status import status
from onceward.cli.stop import stop
from onceward.cli.transactions import transactions
from onceward.cli.verify import restore, verify
from onceward.spark.cause import exit_code_of

app = typer.Typer(
    name="onceward",
    help="Exactly-once delivery from Spark Structured Streaming to systems outside Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def show_version(wanted: bool) -> None:
    """Print it and end, where it is asked for."""
    if wanted:
        out.print(f"onceward {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Exactly-once delivery from Spark Structured Streaming to systems outside Spark."""


for command in (init, run, status, stop, doctor, adopt, recover, replay, rewind, demo):
    app.command()(command)
checkpoints.command()(verify)
checkpoints.command()(restore)
app.add_typer(checkpoints, name="checkpoints")
app.add_typer(transactions, name="transactions")
app.add_typer(poison, name="poison")
app.add_typer(resolve, name="resolve")


def main() -> None:
    """Run the command and exit."""
    as_json = "--json" in sys.argv
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        exit_code = exit_code_of(error)
        show_error(error, as_json=as_json, exit_code=exit_code)
        sys.exit(exit_code)
