"""Every strategy against tables of failure histories; the clock is the table's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onceward import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from onceward.durations import in_seconds, spoken
from onceward.errors import ConfigurationError
from onceward.restart import Failure, GiveUp, RestartAfter, strategy_from

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def failed(at_s: float, *, lived_s: float = 1.0, published: bool = False) -> Failure:
    return Failure(NOON + timedelta(seconds=at_s), lived_s, published)


def outcome(strategy: Any, *failures: Failure) -> tuple[float, int | None] | str:
    """The delay and how many are left, or why it gave up, when the last of them has just happened."""
    match strategy.decide(failures, failures[-1].at):
        case RestartAfter(delay_s=delay_s, left=left):
            return delay_s, left
        case GiveUp(why=why):
            return why


def test_without_a_strategy_the_first_failure_is_the_last() -> None:
    assert outcome(NoRestart(), failed(0)) == "the job has no restart strategy"


OFTEN = "3 failures since an epoch was published, and 2 restarts are allowed"
FIXED = [
    ("the first", [failed(0)], (10.0, 1)),
    ("the second", [failed(0), failed(9)], (10.0, 0)),
    ("one too many", [failed(0), failed(9), failed(18)], OFTEN),
    ("years between them", [failed(0), failed(4e7), failed(8e7)], OFTEN),
    ("an epoch was published before the last", [failed(0), failed(9), failed(18, published=True)], (10.0, 1)),
    ("... and one more failure since", [failed(0), failed(9), failed(18, published=True), failed(27)], (10.0, 0)),
    ("... and two", [failed(0), failed(18, published=True), failed(27), failed(36)], OFTEN),
    ("a long life alone does not count", [failed(0), failed(9), failed(1e6, lived_s=1e6)], OFTEN),
]


@pytest.mark.parametrize(("failures", "expected"), [row[1:] for row in FIXED], ids=[row[0] for row in FIXED])
def test_fixed_delay(failures: list[Failure], expected: object) -> None:
    assert outcome(FixedDelay(2, "10 s"), *failures) == expected


def test_fixed_delay_without_attempts_goes_on_for_ever() -> None:
    assert outcome(FixedDelay(delay=0), *(failed(n) for n in range(5000))) == (0.0, None)


def test_fixed_delay_of_no_attempts_gives_up_at_once() -> None:
    expected = "1 failure since an epoch was published, and 0 restarts are allowed"
    assert outcome(FixedDelay(0), failed(0)) == expected


RATE = [
    ("the first", [failed(0)], (5.0, 1)),
    ("two within the minute", [failed(0), failed(59)], (5.0, 0)),
    ("three within it", [failed(0), failed(30), failed(59)], "3 failures within 1 min, and 2 are allowed"),
    ("the oldest is just outside", [failed(0), failed(30), failed(60)], (5.0, 0)),
    ("all but one are outside", [failed(0), failed(1), failed(2), failed(300)], (5.0, 1)),
    ("an epoch that was published does not count", [failed(0), failed(9), failed(18, published=True)],
     "3 failures within 1 min, and 2 are allowed"),
    ("the clock was put back", [failed(500), failed(501), failed(0)], "3 failures within 1 min, and 2 are allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("failures", "expected"), [row[1:] for row in RATE], ids=[row[0] for row in RATE])
def test_failure_rate(failures: list[Failure], expected: object) -> None:
    assert outcome(FailureRate(2, "1 minute", "5 s"), *failures) == expected


EXPONENTIAL = [
    ("the first", [failed(0)], (1.0, None)),
    ("the second", [failed(0), failed(2)], (2.0, None)),
    ("the third", [failed(n) for n in range(3)], (4.0, None)),
    ("the fourth", [failed(n) for n in range(4)], (8.0, None)),
    ("no more than the maximum", [failed(n) for n in range(5)], (10.0, None)),
    ("nor ever after", [failed(n) for n in range(3000)], (10.0, None)),
    ("a life that was long enough", [*(failed(n) for n in range(5)), failed(99, lived_s=60)], (1.0, None)),
    ("one that was not quite", [*(failed(n) for n in range(2)), failed(99, lived_s=59.9)], (4.0, None)),
    ("the second after a long one", [*(failed(n) for n in range(5)), failed(99, lived_s=90), failed(101)], (2.0, None)),
    ("an epoch that was published does not count", [failed(0), failed(1, published=True)], (2.0, None)),
]


@pytest.mark.parametrize(
    ("failures", "expected"), [row[1:] for row in EXPONENTIAL], ids=[row[0] for row in EXPONENTIAL]
)
def test_exponential_delay(failures: list[Failure], expected: object) -> None:
    strategy = ExponentialDelay("1 s", "10 s", multiplier=2, jitter=0, reset_after="1 minute")
    assert outcome(strategy, *failures) == expected


def test_exponential_delay_gives_up_only_where_attempts_are_given() -> None:
    strategy = ExponentialDelay(attempts=2, jitter=0)
    assert outcome(strategy, failed(0), failed(1)) == (1.5, 0)
    expected = "3 failures since a life of 1 h, and 2 restarts are allowed"
    assert outcome(strategy, failed(0), failed(1), failed(2)) == expected
    assert outcome(strategy, failed(0), failed(1), failed(2, lived_s=3600)) == (1.0, 1)


def test_jitter_follows_from_the_moment_of_the_failure() -> None:
    strategy = ExponentialDelay("10 s", "60 s", multiplier=2, jitter=0.5)
    delays = [strategy.decide([failed(at)], NOON).delay_s for at in (0, 0, 1, 2, 3, 4)]
    assert delays == pytest.approx([11.3312, 11.3312, 7.0543, 9.1113, 11.0544, 10.041], abs=1e-4)
    assert outcome(ExponentialDelay("10 s", "10 s", jitter=0.5), failed(0)) == (10.0, None), "never past the maximum"
    many = [strategy.decide([failed(at)], NOON).delay_s for at in range(500)]
    assert 5.0 <= min(many) < 5.5
    assert 14.5 < max(many) <= 15.0


@pytest.mark.parametrize("strategy", [FixedDelay(7), FixedDelay(), FailureRate(7), ExponentialDelay(attempts=7),
                                      ExponentialDelay("1 s", "1000 s", 2)])  # fmt: skip
def test_what_is_remembered_is_enough_to_decide(strategy: Any) -> None:
    every = [failed(n / 10) for n in range(60)]
    for count in range(1, len(every)):
        newest = every[:count][-strategy.remembers :]
        assert type(strategy.decide(newest, NOON)) is type(strategy.decide(every[:count], NOON))
        if isinstance(strategy, ExponentialDelay):
            plain = ExponentialDelay(strategy.initial, strategy.maximum, strategy.multiplier, 0)
            assert outcome(plain, *newest) == outcome(plain, *every[:count])


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedDelay(-1),
        lambda: FixedDelay(1.5),
        lambda: FixedDelay(True),
        lambda: FixedDelay(1001),
        lambda: FixedDelay(3, "soon"),
        lambda: FixedDelay(3, "10 parsecs"),
        lambda: FixedDelay(3, -1),
        lambda: FixedDelay(3, float("nan")),
        lambda: FixedDelay(3, float("inf")),
        lambda: FixedDelay(3, None),
        lambda: FixedDelay(3, True),
        lambda: FixedDelay(3, ""),
        lambda: FailureRate(None),
        lambda: FailureRate(3, 0),
        lambda: FailureRate(3, "1 hour", "-1 s"),
        lambda: ExponentialDelay(0),
        lambda: ExponentialDelay("2 s", "1 s"),
        lambda: ExponentialDelay(multiplier=0.9),
        lambda: ExponentialDelay(multiplier=float("nan")),
        lambda: ExponentialDelay(multiplier="2"),
        lambda: ExponentialDelay(jitter=1.1),
        lambda: ExponentialDelay(reset_after=0),
        lambda: ExponentialDelay(attempts=-1),
        lambda: strategy_from("always"),
        lambda: strategy_from("none:1"),
        lambda: strategy_from("fixed-delay:x"),
        lambda: strategy_from("fixed-delay:1:2:3"),
        lambda: strategy_from(""),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_given(make: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", NoRestart()),
        ("fixed-delay", FixedDelay()),
        ("fixed-delay:3", FixedDelay(3)),
        ("fixed-delay:3:10s", FixedDelay(3, "10s")),
        ("fixed-delay:-:1.5", FixedDelay(None, 1.5)),
        ("failure-rate:5:10 minutes:0", FailureRate(5, "10 minutes", 0)),
        ("exponential-delay", ExponentialDelay()),
        ("exponential-delay:1s:1m:2:0.2:1h:9", ExponentialDelay("1s", "1m", 2, 0.2, "1h", 9)),
    ],
)
def test_a_strategy_can_be_spelled_on_a_command_line(text: str, expected: object) -> None:
    assert strategy_from(text) == expected


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0), (1.5, 1.5), ("10 s", 10), ("10s", 10), ("500 ms", 0.5), ("5 minutes", 300), ("1.5 hours", 5400),
     ("1 hour 30 minutes", 5400), ("1h30m", 5400), (" 2 DAYS ", 172800), ("1 week", 604800)],
)  # fmt: skip
def test_lengths_of_time(value: Any, seconds: float) -> None:
    assert in_seconds(value, what="it") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.2 s"),
        (12.6, "13 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (3600, "1 h"),
    ],
)
def test_lengths_of_time_in_messages(seconds: float, text: str) -> None:
    assert spoken(seconds) == text
