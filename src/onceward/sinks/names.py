"""Columns by their names, in the options and in the stream: one rule for every sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceward.errors import TargetRefused


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several."""
    return (names,) if isinstance(names, str) else tuple(names)


def named_twice(option: str, names: Sequence[str], *, folded: Callable[[str], str] = str) -> tuple[str, str] | None:
    """What is wrong, and what to do, where a column is named twice; `folded` are equal for names of one column."""
    if len({folded(name) for name in names}) < len(names):
        return f"{option} names a column twice: {', '.join(names)}", "name each column once"
    return None


def wrong_keys(keys: Sequence[str], mode: str, *, folded: Callable[[str], str] = str) -> tuple[str, str] | None:
    """What is wrong with the keys in this `mode`, and what to do: only an upsert has some, and each but once."""
    if mode == "upsert" and not keys:
        return "an upsert needs keys", 'name the columns that tell rows apart: keys=["id"]'
    if mode != "upsert" and keys:
        return f"mode {mode} has no use for keys", 'say mode="upsert", or leave keys out'
    return named_twice("keys", keys, folded=folded)


def refuse_alike(names: Sequence[str], *, folded: Callable[[str], str], target: str) -> None:
    """Raise `TargetRefused` where the stream has no columns, or two that are one to a `target` that ignores case."""
    all_folded = [folded(name) for name in names]
    alike = [name for name in names if all_folded.count(folded(name)) > 1]
    if alike or not names:
        raise TargetRefused(
            f"the stream's columns {', '.join(alike)} are one column to {target}, which ignores case"
            if alike
            else "the stream has no columns",
            hint="rename or add columns in the query",
        )
