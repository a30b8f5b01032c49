"""The `onceward` command: one file a subcommand, JSON with `--json`, exit codes that a supervisor can act on."""

from onceward.cli.main import main

__all__ = ["main"]
