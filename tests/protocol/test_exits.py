"""Every refusal has an exit: each is walked from the refusal, through what a person says, to a job that runs on.

What the exit said would happen is compared with the rows in the targets. Scenarios 80 to 83 of docs/scenarios.md.
The walks are in `walks_*.py`, by what is refused.
"""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from walks_checkpoint import (
    walk_a_manifest_of_other_rows_then_rewind,
    walk_a_rewind_too_far_is_refused_and_the_job_goes_on,
    walk_copied_then_copy,
    walk_replaced_then_fresh_start,
    walk_rolled_back_in_place_and_one_sink_is_published,
    walk_rolled_back_in_place_then_rollback,
    walk_rolled_back_in_place_then_the_epoch_is_published,
    walk_settled_with_other_rows_then_rollback,
    walk_unknown_then_adopt,
)
from walks_damage import (
    walk_a_diversion_that_is_given_again,
    walk_a_fate_of_a_decided_epoch_then_given_up,
    walk_a_fate_of_an_undecided_epoch_and_a_reservation_that_nobody_needs,
    walk_a_manifest_of_a_decided_epoch_then_given_up,
    walk_a_manifest_of_a_decided_epoch_then_rewind,
    walk_a_manifest_of_an_undecided_epoch_that_nobody_needs,
    walk_a_newer_format_then_the_release_that_knows_it,
    walk_a_resolution_that_is_withdrawn_and_given_again,
    walk_a_segment_of_which_one_slot_is_brought_in_by_hand,
    walk_a_segment_then_given_up_in_its_sink,
    walk_a_settled_marker_of_an_epoch_that_spark_runs_again,
    walk_a_settled_marker_that_nobody_needs,
    walk_an_identity_that_is_found_out_from_the_receipts,
    walk_an_identity_that_is_found_out_from_what_is_staged,
)
from walks_publishing import (
    walk_epoch_lost_then_accepted,
    walk_epoch_lost_then_rewind,
    walk_epoch_lost_then_said_of_each_sink,
    walk_fenced_then_one_of_them_goes_on,
    walk_output_lost_then_accepted,
    walk_output_lost_then_each_slot_is_brought_in_by_hand,
    walk_output_lost_then_rewind,
    walk_output_lost_then_the_epoch_is_published_in_one_sink,
    walk_rows_rejected_then_diverted,
    walk_sink_missing_then_given_up,
    walk_sink_missing_then_it_is_put_back,
    walk_sink_missing_with_undecided_work_then_given_up,
    walk_staged_rows_missing_then_the_folder_is_shared,
)
from walks_target import (
    walk_a_target_that_went_back_then_accepted,
    walk_a_target_that_went_back_then_filled_by_hand,
    walk_a_target_that_went_back_then_replay,
    walk_all_targets_went_back_then_rewind,
    walk_receipts_moved_and_the_epoch_is_published,
    walk_receipts_moved_then_back,
    walk_receipts_moved_then_computed_again,
    walk_target_changed_then_examined_anew,
)

from onceward import errors
from onceward.errors import (
    CheckpointCopied,
    CheckpointRefused,
    CheckpointReplaced,
    CheckpointRolledBack,
    CheckpointUnknown,
    DamagedFile,
    EpochLost,
    Fenced,
    NewerFormat,
    OncewardError,
    OutputLost,
    ReceiptsMoved,
    RowsRejected,
    SinkMissing,
    StagedRowsMissing,
    TargetChanged,
    TargetRolledBack,
)

WALKS: dict[type[OncewardError], tuple[Callable[..., None], ...]] = {
    DamagedFile: (
        walk_a_settled_marker_that_nobody_needs,
        walk_a_settled_marker_of_an_epoch_that_spark_runs_again,
        walk_a_manifest_of_a_decided_epoch_then_rewind,
        walk_a_manifest_of_a_decided_epoch_then_given_up,
        walk_a_manifest_of_an_undecided_epoch_that_nobody_needs,
        walk_a_fate_of_a_decided_epoch_then_given_up,
        walk_a_fate_of_an_undecided_epoch_and_a_reservation_that_nobody_needs,
        walk_a_segment_then_given_up_in_its_sink,
        walk_a_segment_of_which_one_slot_is_brought_in_by_hand,
        walk_an_identity_that_is_found_out_from_what_is_staged,
        walk_an_identity_that_is_found_out_from_the_receipts,
        walk_a_diversion_that_is_given_again,
        walk_a_resolution_that_is_withdrawn_and_given_again,
    ),
    NewerFormat: (walk_a_newer_format_then_the_release_that_knows_it,),
    CheckpointRefused: (walk_a_rewind_too_far_is_refused_and_the_job_goes_on,),
    CheckpointUnknown: (walk_unknown_then_adopt,),
    CheckpointReplaced: (walk_replaced_then_fresh_start,),
    CheckpointCopied: (walk_copied_then_copy,),
    CheckpointRolledBack: (
        walk_rolled_back_in_place_then_the_epoch_is_published,
        walk_rolled_back_in_place_and_one_sink_is_published,
        walk_rolled_back_in_place_then_rollback,
        walk_settled_with_other_rows_then_rollback,
        walk_a_manifest_of_other_rows_then_rewind,
    ),
    EpochLost: (walk_epoch_lost_then_rewind, walk_epoch_lost_then_accepted, walk_epoch_lost_then_said_of_each_sink),
    OutputLost: (
        walk_output_lost_then_each_slot_is_brought_in_by_hand,
        walk_output_lost_then_the_epoch_is_published_in_one_sink,
        walk_output_lost_then_accepted,
        walk_output_lost_then_rewind,
    ),
    SinkMissing: (
        walk_sink_missing_then_it_is_put_back,
        walk_sink_missing_then_given_up,
        walk_sink_missing_with_undecided_work_then_given_up,
    ),
    TargetRolledBack: (
        walk_a_target_that_went_back_then_replay,
        walk_a_target_that_went_back_then_accepted,
        walk_a_target_that_went_back_then_filled_by_hand,
        walk_all_targets_went_back_then_rewind,
    ),
    ReceiptsMoved: (
        walk_receipts_moved_then_back,
        walk_receipts_moved_and_the_epoch_is_published,
        walk_receipts_moved_then_computed_again,
    ),
    TargetChanged: (walk_target_changed_then_examined_anew,),
    StagedRowsMissing: (walk_staged_rows_missing_then_the_folder_is_shared,),
    RowsRejected: (walk_rows_rejected_then_diverted,),
    Fenced: (walk_fenced_then_one_of_them_goes_on,),
}
ELSEWHERE = {
    # Against real brokers: tests/spark/test_kafka_source.py, both tests that end in "unless_accepted".
    errors.SourceDataLost,
}


@pytest.mark.parametrize("walk", [walk for walks in WALKS.values() for walk in walks], ids=lambda walk: walk.__name__)
def test_a_refusal_has_an_exit(walk: Callable[..., None], tmp_path: Path) -> None:
    walk(tmp_path) if inspect.signature(walk).parameters else walk()


def test_every_refusal_is_walked() -> None:
    """A new error that a person must be asked about fails here until its exit is walked."""
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, OncewardError)]
    refusals = {kind for kind in kinds if kind.exit_code in (1, 4) and kind is not OncewardError}
    assert refusals == WALKS.keys() | ELSEWHERE
