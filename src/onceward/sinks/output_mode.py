"""Spark's output modes and what a table can do with them: one rule for every sink that has a `mode`."""

from __future__ import annotations

from onceward.contracts import Repeated
from onceward.errors import TargetRefused

_INSTEAD = {"replace": 'mode="replace"', "upsert": 'mode="upsert" with keys'}


def by_mode(mode: str) -> Repeated:
    """What becomes of rows that come again, in a sink with a `mode`."""
    return {"upsert": Repeated.OVERWRITTEN, "replace": Repeated.REPLACED}.get(mode, Repeated.DUPLICATES)


def refuse_output_mode(output_mode: str, mode: str, *, modes: tuple[str, ...]) -> None:
    """Raise `TargetRefused` where a table in this `mode` would not become the query's result; `modes` the sink has."""
    if output_mode == "complete" and mode == "append":
        raise TargetRefused(
            "output mode complete gives the whole result in every epoch, and mode append would pile it up",
            hint="use " + ", or ".join(_INSTEAD[other] for other in modes if other != "append"),
        )
    if output_mode != "complete" and mode == "replace":
        raise TargetRefused(
            f"mode replace needs output mode complete; with {output_mode} an epoch is only a part of the result",
            hint='use output_mode="complete", or mode="upsert" with keys',
        )
