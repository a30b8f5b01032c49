"""Which checkpoint a pipeline or a hook runs for, so that a job has to name it only once."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from onceward.contracts import Hooks

A = TypeVar("A")
R = TypeVar("R")
_checkpoint: ContextVar[Path | None] = ContextVar("onceward_checkpoint", default=None)


def current_checkpoint() -> Path | None:
    """The checkpoint of the job whose pipeline or hook is running; None elsewhere."""
    return _checkpoint.get()


def for_checkpoint(root: Path, call: Callable[[A], R]) -> Callable[[A], R]:
    """The same, and whatever it calls knows the checkpoint."""

    def called(argument: A) -> R:
        token = _checkpoint.set(root)
        try:
            return call(argument)
        finally:
            _checkpoint.reset(token)

    return called


def hooks_for_checkpoint(root: Path, hooks: Hooks) -> Hooks:
    """All of them so."""
    return Hooks(**{field.name: for_checkpoint(root, getattr(hooks, field.name)) for field in fields(hooks)})
