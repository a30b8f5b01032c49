"""The names that a user gives: one for each stateful operator in the order data flows, one for each source. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from onceward.errors import ConfigurationError
from onceward.identity import checked_name
from onceward.operators.topology import Operator, SourceInfo, Topology


def checked_names(option: Literal["operators", "sources"], names: object) -> None:
    """Refuse what cannot be a list of names; how many there must be, only the plan tells."""
    if names is None:
        return
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(one, str) for one in names):
        raise ConfigurationError(
            f"{option}={names!r} is no list of names", hint=f'say {option}=["first", "second"], in the order data flows'
        )
    for name in names:
        checked_name(option.removesuffix("s"), name)
    if len(set(names)) != len(names):
        raise ConfigurationError(f"two {option} share a name: {sorted(names)}", hint="give each a name of its own")


def with_names(
    found: Topology, *, operators: Sequence[str] | None = None, sources: Sequence[str] | None = None
) -> Topology:
    """The same with the user's names; `ConfigurationError` where there are too few or too many."""
    named = replace(found, operators=_operators(found.operators, operators)) if operators is not None else found
    return replace(named, sources=_sources(found.sources, sources)) if sources is not None else named


def _operators(found: tuple[Operator, ...], names: Sequence[str]) -> tuple[Operator, ...]:
    _refuse_count("stateful operators", "operators", found, names)
    return tuple(replace(one, name=name) for one, name in zip(found, names, strict=True))


def _sources(found: tuple[SourceInfo, ...], names: Sequence[str]) -> tuple[SourceInfo, ...]:
    _refuse_count("sources", "sources", found, names)
    theirs = [one.name for one in found if one.is_named_by_spark]
    if theirs and theirs != list(names):
        raise ConfigurationError(
            f"sources={list(names)}, and the pipeline itself names them {theirs}",
            hint="leave out sources=[...]: names given by readStream.name(...) are known",
        )
    return tuple(replace(one, name=name) for one, name in zip(found, names, strict=True))


def _refuse_count(what: str, option: str, found: Sequence[Operator | SourceInfo], names: Sequence[str]) -> None:
    if len(found) == len(names):
        return
    listed = "; ".join(str(one) for one in found) or "none"
    raise ConfigurationError(
        f"{option}=[...] has {len(names)} names, and the pipeline has {len(found)} {what}: {listed}",
        hint=f"give a name for each of them, in this order, which is that in which data flows; or leave out {option}",
    )
