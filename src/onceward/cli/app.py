"""The whole command, with every subcommand: for its help, and for whoever calls it from Python."""

from __future__ import annotations

from onceward.cli.main import COMMANDS, command_with

app = command_with(COMMANDS)
