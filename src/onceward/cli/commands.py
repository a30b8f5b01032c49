"""How `--help` looks: an option that takes no value shows none. Typer writes `<bool>` after it, as if it took one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _without_types(found: list[Any]) -> list[Any]:
    for one in found:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return found


class Commands(typer.Typer):
    """A group of commands whose help is easy to read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=_Group, no_args_is_help=True, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Add a command."""
        return super().command(name, cls=_Command, **options)
