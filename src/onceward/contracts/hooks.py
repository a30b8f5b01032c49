"""Points in an epoch's life at which a user may look on, or object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

EpochHook = Callable[[int], None]


def _nothing(epoch: int) -> None:
    """The default hook."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callables of one argument, the epoch, on the driver.

    `on_begin` and `on_pre_commit` run before the decision: raising there fails the epoch, nothing becomes visible, and
    it runs again after a restart. The others (`on_decision`, `on_publish` once every sink has it, `on_abort`) run after
    the fact and cannot change it: what they raise is warned about and the epoch goes on.

    Within a run `on_abort` is called at most once for each `on_begin`. A start that throws away what the run before has
    left calls it, too, whether that run had come to call it or not: across a failure or a crash, at least once.
    """

    on_begin: EpochHook = _nothing
    on_pre_commit: EpochHook = _nothing
    on_decision: EpochHook = _nothing
    on_publish: EpochHook = _nothing
    on_abort: EpochHook = _nothing
