"""What a sink relies on in its target, compared with what it found before."""

from __future__ import annotations

from collections.abc import Mapping

from onceward.errors import TargetChanged

_NOT_THERE = "not there"


def what_changed(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The facts that differ, for a person; empty when none does."""
    differing = [fact for fact in {**before, **now} if before.get(fact) != now.get(fact)]
    return "; ".join(
        f"{fact} was {before.get(fact, _NOT_THERE)} and is {now.get(fact, _NOT_THERE)}" for fact in differing
    )


def refuse_change(before: Mapping[str, str], now: Mapping[str, str], *, epoch: int | None = None) -> None:
    """Stop where a sink is about to rely on facts that are no longer so. The next start examines the target anew."""
    if told := what_changed(before, now):
        raise TargetChanged(
            f"the target is not as it was when the job started: {told}",
            epoch=epoch,
            hint="put it back, or start again: the start examines the target as it is now, and goes on or says what "
            "to fix; nothing is lost, what is staged stays staged",
        )
