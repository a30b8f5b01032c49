"""The simulation is itself tested: take one rule of the protocol away, and some history breaks a promise.

The rules are those of tests/model; here they are taken away from the real code. The rare ones, which need three drivers
at the right moments, are in test_two_drivers.py.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onceward.epoch import Publisher, RunContext, housekeeping, publish, takeover
from onceward.identity import TransactionName
from onceward.journal import Manifest, Marker
from onceward.recovery import TakeOver, execute, plan
from onceward.testing.fake_sinks import FakeTwoPhaseSink, MemoryTarget
from onceward.testing.simulate import Violation, WatchedLogs, simulate

SEEDS = 5_000


def lower_manifests_stay_valid(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publish, "settle_fates", lambda context, epoch: 0)


def nothing_is_taken_over(patch: pytest.MonkeyPatch) -> None:
    def abort_only(context: RunContext, epoch: int) -> int:
        def of_epoch(name: TransactionName) -> bool:
            return name.epoch == epoch

        takeover.abort_transactions(context, of_epoch)
        return 0

    patch.setattr(execute, "take_over", abort_only)


def receipts_of_an_undecided_epoch_prove_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "_undecided", lambda survey, found: TakeOver(found.epoch))


def the_reaper_takes_undecided_work(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(housekeeping, "orphans", lambda context, listed: listed)


def receipts_are_pruned_without_a_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryTarget, "settled", lambda self, job, sink: -1)
    patch.setattr(FakeTwoPhaseSink, "_may_be_pruned", lambda self, handle: False)


def files_go_before_the_marker(patch: pytest.MonkeyPatch) -> None:
    def mark(self: Any, epoch: int, fingerprint: Any, totals: Any, manifest: Any = None) -> None:
        context = self._context
        context.segments.remove_epoch(epoch)
        context.register.forget(epoch)
        context.settled.mark(Marker(epoch, fingerprint, context.clock.now(), totals))

    patch.setattr(Publisher, "_mark", mark)


def the_commit_log_alone_decides(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WatchedLogs, "decided", lambda self: max(self.commits, default=-1))


def epochs_are_published_newest_first(patch: pytest.MonkeyPatch) -> None:
    def publish_decided(self: Any) -> int:
        decided: int = self._context.decisions.decided()
        for epoch in range(decided, self._context.watermark(), -1):
            self.publish_epoch(epoch)
        return decided

    patch.setattr(Publisher, "publish_decided", publish_decided)


def a_taker_adopts_all_but_one_slot(patch: pytest.MonkeyPatch) -> None:
    def without_one(manifest: Manifest, **changes: Any) -> Manifest:
        sinks = {name: replace(entry, slots=entry.slots[1:]) for name, entry in manifest.sinks.items()}
        return replace(manifest, sinks=sinks, **changes)

    patch.setattr(takeover, "replace", without_one)


def a_taker_aborts_what_it_should_adopt(patch: pytest.MonkeyPatch) -> None:
    def abort(context: RunContext, epoch: int, number: int) -> None:
        takeover.abort_transactions(context, lambda name: name.epoch == epoch and name.takeover < number)

    patch.setattr(takeover, "_adopt", abort)


@pytest.mark.parametrize(
    "without",
    [
        lower_manifests_stay_valid,
        nothing_is_taken_over,
        receipts_of_an_undecided_epoch_prove_nothing,
        the_reaper_takes_undecided_work,
        receipts_are_pruned_without_a_watermark,
        files_go_before_the_marker,
        the_commit_log_alone_decides,
        epochs_are_published_newest_first,
        a_taker_adopts_all_but_one_slot,
        a_taker_aborts_what_it_should_adopt,
    ],
    ids=lambda rule: rule.__name__.replace("_", " "),
)
def test_a_protocol_without_this_rule_is_caught(
    without: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch)
    caught = next((seed for seed in range(SEEDS) if is_violated(seed)), None)
    assert caught is not None, f"{SEEDS} histories and none noticed"
    monkeypatch.undo()
    assert not is_violated(caught), "the same history must be clean with the rule, or it was not the rule that broke it"


def is_violated(seed: int) -> bool:
    try:
        simulate(seed)
    except Violation:
        return True
    return False
