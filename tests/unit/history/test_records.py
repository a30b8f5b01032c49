"""What is made of the events of an epoch: its record, its phases, and percentiles over many."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from onceward.contracts.events import (
    Begun,
    Decided,
    Delivered,
    EngineReported,
    Event,
    Failed,
    PreCommitted,
    Retried,
    Settled,
    Staged,
    StagedSlot,
    StateSize,
)
from onceward.history import PHASES, Distribution, EpochRecord, duration_s, folded, phases, summary
from onceward.identity import RunId, SinkName

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TABLE = SinkName("table")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


SLOTS = (StagedSlot(0, 3, 300, "a", at(2)), StagedSlot(1, 4, 400, "b", at(5)))
WHOLE: list[Event] = [
    Begun(7, at(1), at(0), 2, "exactly-once"),
    Staged(7, at(6), SLOTS),
    PreCommitted(7, at(7)),
    Decided(7, at(9)),
    Retried(7, at(10), TABLE, "away"),
    Delivered(7, at(13), TABLE, at(9.5), 2, 7),
    Settled(7, at(13.5), {TABLE: 7}),
    EngineReported(
        7, at(14), {"latestOffset": 100, "queryPlanning": 20, "getBatch": 3, "walCommit": 60, "addBatch": 6000}, 70,
        {"files": "7"}, (StateSize("dedupe", 10, 1000, 5),),
    ),
]  # fmt: skip


def record_of(*events: Event) -> EpochRecord:
    record = EpochRecord(events[0].epoch, RunId("run"))
    for event in events:
        record = folded(record, event)
    return record


def test_every_event_leaves_its_mark() -> None:
    record = record_of(*WHOLE)
    assert (record.epoch, record.run, record.outcome, record.takeover) == (7, "run", "settled", 2)
    assert (record.rows, record.bytes, record.slot_count, record.slots) == (7, 700, 2, SLOTS)
    assert (record.sinks[TABLE].retries, record.sinks[TABLE].failure) == (1, "away")
    assert (record.input_rows, record.sources, record.state[0].bytes) == (70, {"files": "7"}, 1000)


def test_a_record_is_read_back_as_it_was() -> None:
    for events in (WHOLE, WHOLE[:1], [*WHOLE[:1], Failed(7, at(2), "TargetError", "no")], WHOLE[3:7]):
        record = record_of(*events)
        assert EpochRecord.from_json(record.to_json()) == record


def test_the_phases_are_the_times_between_the_steps() -> None:
    assert phases(record_of(*WHOLE)) == {
        "planning": 0.123,
        "barrier": 0.06,
        "staging": 5.0,
        "alignment": 3.0,
        "manifest": 1.0,
        "decision": 2.0,
        "publish": 4.0,
        "settle": 0.5,
    }
    assert list(phases(record_of(*WHOLE))) == list(PHASES)
    assert duration_s(record_of(*WHOLE)) == 13.5


def test_what_another_driver_had_staged_has_only_its_later_phases() -> None:
    record = record_of(*WHOLE[3:7])
    assert phases(record) == {"publish": 4.0, "settle": 0.5}
    assert (record.rows, duration_s(record)) == (7, 4.5)


def test_an_epoch_that_goes_out_before_the_decision_is_not_published_after_it() -> None:
    early = [WHOLE[0], WHOLE[1], Delivered(7, at(6.5), TABLE, at(6), 2, 7), PreCommitted(7, at(7)), Decided(7, at(9))]
    assert phases(record_of(*early, Settled(7, at(10), {})))["settle"] == 1.0
    assert "publish" not in phases(record_of(*early, Settled(7, at(10), {})))


def test_a_clock_that_goes_back_makes_no_phase_negative() -> None:
    record = record_of(WHOLE[0], Staged(7, at(-5), ()), Settled(7, at(-9), {}))
    assert phases(record)["staging"] == 0.0
    assert duration_s(record) == 0.0


def test_a_second_attempt_begins_anew() -> None:
    failed = record_of(WHOLE[0], WHOLE[1], Failed(7, at(3), "EpochTimedOut", "too long"))
    assert (failed.outcome, failed.error, failed.why) == ("failed", "EpochTimedOut", "too long")
    again = folded(failed, Begun(7, at(20), at(0), 3, "exactly-once"))
    assert (again.outcome, again.slots, again.error, again.takeover) == ("open", (), "", 3)


def test_of_very_many_slots_the_totals_are_kept() -> None:
    slots = tuple(StagedSlot(number, 2, 10, "") for number in range(1500))
    record = record_of(WHOLE[0], Staged(7, at(1), slots))
    assert (record.slot_count, record.rows, len(record.slots)) == (1500, 3000, 1000)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5.0], Distribution(1, 5, 5, 5, 5, 5, 5)),
        ([float(n) for n in range(1, 101)], Distribution(100, 1, 50.5, 100, 50, 90, 99)),
        ([3.0, 1.0, 2.0], Distribution(3, 1, 2, 3, 2, 3, 3)),
    ],
)
def test_percentiles_are_by_nearest_rank(values: list[float], expected: Distribution) -> None:
    assert Distribution.of(values) == expected


def test_there_are_none_without_values() -> None:
    assert Distribution.of([]) is None
    assert summary([]).distributions == {}


def test_a_failed_attempt_is_counted_and_its_rows_are_not() -> None:
    whole = record_of(*WHOLE)
    failed = record_of(WHOLE[0], WHOLE[1], Failed(7, at(3), "E", "no"))
    found = summary([failed, whole, replace(whole, epoch=8)])
    assert (found.epochs, found.settled, found.failed, found.rows, found.retries) == (2, 2, 1, 14, 2)
    assert found.distributions["duration"].count == 2
    assert found.distributions["state_bytes"].p99 == 1000
