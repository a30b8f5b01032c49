"""Columns that a user names in the options: one rule for every sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence


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
