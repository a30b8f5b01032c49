"""The plan is a pure function: each row of the table in docs/architecture.md, and each refusal, without any storage."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from onceward.contracts import Receipt
from onceward.epoch import EpochSurvey, PendingTransaction, Publish, ReportLost, Settle
from onceward.errors import CheckpointReplaced, CheckpointRolledBack, CheckpointUnknown, DamagedFile
from onceward.identity import (
    IMMEDIATE,
    Fingerprint,
    Generation,
    JobIdentity,
    JobName,
    RunId,
    SinkName,
    TransactionName,
)
from onceward.journal import Manifest, SinkEntry, SlotEntry
from onceward.recovery import Accept, AlreadyPublished, Reap, Refuse, Survey, TakeOver, make_plan

JOB = JobIdentity(JobName("job"), Generation("aaaaaaaa"))
OTHER = Generation("bbbbbbbb")
SINK = SinkName("sink")
AT = datetime(2026, 1, 1, tzinfo=UTC)
TODAY, ANOTHER = Fingerprint("today"), Fingerprint("another")


def manifest(epoch: int, slots: int = 2) -> Manifest:
    entries = tuple(SlotEntry(slot, 1, {"transaction": f"t{slot}"}) for slot in range(slots))
    sinks = {SINK: SinkEntry("by some means", entries)}
    return Manifest(JOB, epoch, 0, RunId("rrrrrr"), TODAY, AT, AT, sinks)


def receipt(
    epoch: int, slot: int = 0, *, generation: Generation = JOB.generation, fingerprint: Fingerprint = TODAY
) -> Receipt:
    return Receipt(JOB.name, generation, SINK, epoch, slot, fingerprint)


def epoch(number: int, found: Manifest | None, *, engine_made: bool = False) -> EpochSurvey:
    return EpochSurvey(number, TODAY, found, engine_made)


def survey(
    *epochs: EpochSurvey,
    decided: int,
    planned: int | None = None,
    watermark: int = -1,
    watermark_fingerprint: Fingerprint | None = TODAY,
    watermark_barrier: Fingerprint | None = TODAY,
    receipts: tuple[Receipt, ...] = (),
    orphans: tuple[PendingTransaction, ...] = (),
) -> Survey:
    return Survey(
        decided=decided,
        planned=decided if planned is None else planned,
        watermark=watermark,
        watermark_fingerprint=watermark_fingerprint,
        watermark_barrier=watermark_barrier,
        epochs={found.epoch: found for found in epochs},
        receipts=receipts,
        orphans=orphans,
        sinks=frozenset({SINK}),
        generation=JOB.generation,
        known_generations=frozenset({JOB.generation}),
    )


DECIDED = [
    pytest.param(
        epoch(0, manifest(0)), (receipt(0, 0), receipt(0, 1)), Settle(0, "every slot has its receipt"), id="all"
    ),
    pytest.param(epoch(0, manifest(0)), (receipt(0, 1),), Publish(0, slots=2, receipts=1), id="some"),
    pytest.param(epoch(0, manifest(0)), (), Publish(0, slots=2, receipts=0), id="none"),
    pytest.param(
        epoch(0, manifest(0)),
        (receipt(0, 0), replace(receipt(0, 1), is_whole=False)),
        Publish(0, slots=2, receipts=1),
        id="one slot in part",
    ),
    pytest.param(epoch(0, manifest(0, slots=0)), (), Settle(0, "nothing to publish"), id="empty epoch"),
    pytest.param(epoch(0, None), (), ReportLost(0), id="no manifest"),
    pytest.param(EpochSurvey(0, None, manifest(0)), (receipt(0, 1),), Publish(0, slots=2, receipts=1), id="no barrier"),
    pytest.param(epoch(0, None, engine_made=True), (), Settle(0, "made by Spark alone"), id="repartitioned offline"),
]


@pytest.mark.parametrize(("found", "receipts", "step"), DECIDED)
def test_a_decided_epoch(found: EpochSurvey, receipts: tuple[Receipt, ...], step: object) -> None:
    assert make_plan(survey(found, decided=0, receipts=receipts)).steps == (step,)


UNDECIDED = [
    pytest.param(epoch(0, None), (), -1, TakeOver(0), id="nothing at all"),
    pytest.param(epoch(0, manifest(0)), (), -1, TakeOver(0), id="manifest, no receipts"),
    pytest.param(
        epoch(0, manifest(0)), (receipt(0),), -1, AlreadyPublished(0, TODAY, settled=False), id="some receipts"
    ),
    pytest.param(
        epoch(0, manifest(0)),
        (receipt(0, 0), receipt(0, 1)),
        -1,
        AlreadyPublished(0, TODAY, settled=False),
        id="all receipts",
    ),
    pytest.param(epoch(0, None), (), 0, AlreadyPublished(0, TODAY, settled=True), id="settled"),
]


@pytest.mark.parametrize(("found", "receipts", "watermark", "step"), UNDECIDED)
def test_an_undecided_epoch(found: EpochSurvey, receipts: tuple[Receipt, ...], watermark: int, step: object) -> None:
    plan = make_plan(survey(found, decided=-1, planned=0, watermark=watermark, receipts=receipts))
    assert plan.steps == (step,)


def refusal(found: Survey, *accepted: Accept) -> object:
    plan = make_plan(found, frozenset(accepted))
    if plan.refusal is None:
        return None
    assert all(isinstance(step, Refuse) for step in plan.steps), "nothing else may happen beside a refusal"
    return type(plan.refusal)


def test_s34_receipts_with_another_fingerprint_mean_another_checkpoint() -> None:
    found = survey(epoch(0, manifest(0)), decided=-1, planned=0, receipts=(receipt(0, fingerprint=ANOTHER),))
    assert refusal(found) is CheckpointRolledBack
    assert refusal(found, Accept.FRESH_START) is CheckpointRolledBack
    assert refusal(found, Accept.ROLLBACK) is None


def test_s34_a_target_that_is_ahead_of_the_checkpoint_is_refused() -> None:
    found = survey(epoch(0, manifest(0)), decided=0, receipts=(receipt(0), receipt(7)))
    assert refusal(found) is CheckpointRolledBack
    assert "epoch 7" in str(make_plan(found).refusal)


def test_s82_receipts_of_an_undecided_epoch_without_a_manifest_mean_that_a_snapshot_was_put_back() -> None:
    found = survey(epoch(0, None), decided=-1, planned=0, receipts=(receipt(0),))
    assert refusal(found) is CheckpointRolledBack
    assert "epoch-is-published" in str(make_plan(found).refusal)
    assert refusal(found, Accept.ROLLBACK) is None


def test_s80_a_checkpoint_that_spark_has_decided_on_is_taken_over_only_if_that_is_asked_for() -> None:
    found = replace(survey(decided=3, watermark=3), is_identified=False)
    assert refusal(found) is CheckpointUnknown
    assert refusal(found, Accept.FRESH_START) is CheckpointUnknown
    assert refusal(found, Accept.ADOPT) is None
    assert refusal(replace(survey(decided=-1, planned=0), is_identified=False)) is CheckpointUnknown, "begun"
    assert refusal(replace(survey(decided=-1, planned=-1), is_identified=False)) is None, "Spark has begun nothing"


def test_s83_a_damaged_marker_matters_only_where_spark_runs_its_epoch_again() -> None:
    harmless = replace(survey(decided=2, watermark=2, watermark_fingerprint=None), watermark_damaged="flipped")
    assert make_plan(harmless).steps == ()
    again = survey(epoch(2, None), decided=1, planned=2, watermark=2, watermark_fingerprint=None)
    refused = make_plan(replace(again, watermark_damaged="flipped")).refusal
    assert isinstance(refused, DamagedFile)
    assert "epoch-is-published" in str(refused.hint)


def test_s34_a_watermark_ahead_of_sparks_logs_is_refused() -> None:
    assert refusal(survey(decided=2, watermark=5)) is CheckpointRolledBack


def test_s34_an_undecided_epoch_that_was_settled_with_other_rows_is_refused() -> None:
    found = survey(epoch(1, None), decided=0, planned=1, watermark=1, watermark_fingerprint=ANOTHER)
    assert refusal(found) is CheckpointRolledBack


def test_s34_a_settled_epoch_whose_barrier_was_written_over_is_refused() -> None:
    assert refusal(survey(decided=1, watermark=1, watermark_barrier=ANOTHER)) is CheckpointRolledBack
    assert refusal(survey(decided=1, watermark=1, watermark_barrier=None)) is None, "Spark has purged it"
    assert refusal(survey(decided=1, watermark=1, watermark_fingerprint=None)) is None, "its marker was pruned"


def test_s36_receipts_of_an_unknown_generation_are_refused_and_named() -> None:
    found = survey(decided=-1, receipts=(receipt(3, generation=OTHER), receipt(9, generation=OTHER)))
    assert refusal(found) is CheckpointReplaced
    assert f"generation {OTHER} up to epoch 9" in str(make_plan(found).refusal)
    assert "fresh-start" in str(make_plan(found).refusal)
    assert refusal(found, Accept.FRESH_START) is None


def test_s17_several_epochs_are_planned_in_order_and_the_reaper_comes_last() -> None:
    name = TransactionName.of(JOB, SINK, epoch=0, takeover=0, slot=0, attempt=3, run=RunId("rrrrrr"))
    orphan = PendingTransaction(SINK, name, {"transaction": str(name)})
    found = survey(
        *(epoch(n, manifest(n)) for n in range(5)),
        decided=3,
        planned=4,
        watermark=1,
        receipts=tuple(receipt(2, slot) for slot in range(2)),
        orphans=(orphan,),
    )
    assert make_plan(found).steps == (
        Settle(2, "every slot has its receipt"),
        Publish(3, slots=2, receipts=0),
        TakeOver(4),
        Reap(1),
    )


def test_receipts_of_output_that_went_before_the_decision_prove_nothing() -> None:
    """They stand in the target under the epoch's number, without its fingerprint."""
    immediate = (receipt(0, 0, fingerprint=IMMEDIATE), receipt(0, 1, fingerprint=IMMEDIATE))
    undecided = survey(epoch(0, manifest(0)), decided=-1, planned=0, receipts=immediate)
    assert make_plan(undecided).steps == (TakeOver(0),)
    decided = survey(epoch(0, manifest(0)), decided=0, receipts=immediate)
    assert make_plan(decided).steps == (Publish(0, slots=2, receipts=0),)


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert make_plan(survey(decided=-1)).steps == ()
    assert make_plan(survey(decided=7, watermark=7)).steps == ()


def test_receipts_of_other_generations_or_sinks_do_not_settle_an_epoch() -> None:
    foreign_sink = Receipt(JOB.name, JOB.generation, SinkName("other"), 0, 0, TODAY)
    found = survey(epoch(0, manifest(0, slots=1)), decided=0, receipts=(foreign_sink,))
    assert make_plan(found).steps == (Publish(0, slots=1, receipts=0),)
