"""The lives of a job, as they are kept in its checkpoint, and what a new process makes of them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from onceward.errors import StorageFailed
from onceward.journal import seal
from onceward.restart import (
    Decision,
    ExitReport,
    FixedDelay,
    GiveUp,
    How,
    LifeLog,
    Reached,
    RestartAfter,
    Restarts,
    RestartStrategy,
    announce,
    first_line,
)
from onceward.restart.history import Then, failures
from onceward.storage import LocalStorage
from onceward.testing import ManualClock

KILLED = ExitReport(How.KILLED, 3.0, signal="SIGKILL")
STOPPED = ExitReport(How.STOPPED, 3.0, exit_code=0)
REFUSED = ExitReport(How.REFUSED, 3.0, exit_code=2, error="ConfigurationError", message="no such table")


class Host:
    """A folder, a clock, and as many processes after one another as the test wants."""

    def __init__(self, folder: Path, strategy: RestartStrategy) -> None:
        self.clock = ManualClock()
        self.storage = LocalStorage(folder)
        self.strategy = strategy
        self.settled = -1

    def process(self) -> Restarts:
        log = LifeLog(self.storage, self.clock)
        return Restarts(self.strategy, log, self.clock, lambda: Reached(self.settled, self.settled))

    def life(self, words: ExitReport, process: Restarts | None = None, *, stopping: bool = False) -> Decision | None:
        restarts = process or self.process()
        restarts.begin()
        self.clock.pause(words.lived_s)
        return restarts.end(words, stopping=stopping)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, FixedDelay(2, "10 s"))


def test_a_crash_loop_is_not_forgotten_by_a_new_process(host: Host) -> None:
    assert [type(host.life(KILLED)) for _ in range(4)] == [RestartAfter, RestartAfter, GiveUp, GiveUp]
    assert [life.ended.then for life in host.process().lives if life.ended] == [
        Then.RESTART,
        Then.RESTART,
        Then.GAVE_UP,
        Then.GAVE_UP,
    ]


def test_a_clean_stop_ends_the_row_and_a_refusal_neither_counts_nor_ends_it(host: Host) -> None:
    host.life(KILLED)
    assert host.life(STOPPED) is None
    assert host.life(REFUSED) is None
    assert host.life(KILLED) == RestartAfter(10.0, "failure 1 since an epoch was published", 1)
    assert host.life(REFUSED) is None
    assert host.life(KILLED) == RestartAfter(10.0, "failure 2 since an epoch was published", 0)


def test_an_epoch_that_was_published_in_a_life_ends_the_row(host: Host) -> None:
    host.life(KILLED)
    process = host.process()
    process.begin()
    host.settled = 7
    assert process.end(KILLED) == RestartAfter(10.0, "failure 1 since an epoch was published", 1)


def test_a_failure_while_stopping_is_recorded_and_nothing_is_decided(host: Host) -> None:
    assert host.life(KILLED, stopping=True) is None
    (life,) = host.process().lives
    assert life.ended is not None
    assert life.ended.then is Then.END
    assert len(failures(host.process().lives)) == 1


def test_a_life_without_an_end_has_vanished_and_counts(host: Host) -> None:
    for _ in range(2):
        host.life(KILLED)
    host.process().begin()
    host.clock.pause(3.0)
    after = host.process()
    assert after.settle_vanished() == GiveUp("3 failures since an epoch was published, and 2 restarts are allowed")
    ended = host.process().lives[-1].ended
    assert ended is not None
    assert (ended.how, ended.then, ended.lived_s) == (How.VANISHED, Then.GAVE_UP, 0.0)
    assert host.process().settle_vanished() is None, "whoever starts it again after that has been told"
    assert isinstance(host.life(KILLED), GiveUp), "and the row goes on"


def test_the_pause_after_a_life_that_vanished_began_with_its_last_sign(host: Host) -> None:
    host.process().begin()
    host.clock.pause(4.0)
    decision = host.process().settle_vanished()
    assert isinstance(decision, RestartAfter)
    assert decision.delay_s == 6.0
    host.process().begin()
    host.clock.pause(40.0)
    decision = host.process().settle_vanished()
    assert isinstance(decision, RestartAfter)
    assert decision.delay_s == 0.0


def test_of_two_that_begin_at_once_each_gets_its_number(host: Host) -> None:
    one, two = host.process(), host.process()
    assert [one.begin().number, two.begin().number, one.begin().number] == [0, 1, 2]


def test_the_end_that_was_recorded_first_stays(host: Host) -> None:
    old = host.process()
    old.begin()
    new = host.process()
    new.settle_vanished()
    old.end(STOPPED)
    (life,) = host.process().lives
    assert life.ended is not None
    assert life.ended.how is How.VANISHED


def test_the_history_is_bounded_and_keeps_what_the_strategy_counts(tmp_path: Path) -> None:
    host = Host(tmp_path / "short", FixedDelay(2, 0))
    process = host.process()
    for _ in range(120):
        host.life(KILLED, process)
    assert sorted(path.name for path in (tmp_path / "short" / "lives").iterdir()) == sorted(
        f"{number}.{what}" for number in range(20, 120) for what in ("begun", "ended")
    )
    patient = Host(tmp_path / "long", FixedDelay(130, 0))
    process = patient.process()
    assert next(number for number in range(140) if isinstance(patient.life(KILLED, process), GiveUp)) == 130
    assert len(patient.process().lives) == 131
    assert isinstance(patient.life(KILLED), GiveUp), "a new process counts as far"


@pytest.mark.parametrize("name", ["1.begun", "1.ended"])
def test_a_damaged_file_is_no_reason_not_to_start_and_no_forgiveness(host: Host, name: str, tmp_path: Path) -> None:
    for _ in range(2):
        host.life(KILLED)
    (tmp_path / "lives" / name).write_bytes(b"onceward begun 1 torn")
    assert isinstance(host.life(KILLED), GiveUp)


def test_a_file_that_is_whole_and_lacks_a_field_is_damaged_too(host: Host, tmp_path: Path) -> None:
    host.life(KILLED)
    (tmp_path / "lives" / "0.ended").write_bytes(seal("ended", {"life": 0}))
    (life,) = host.process().lives
    assert life.ended is not None
    assert life.ended.how is How.VANISHED


class Full(LocalStorage):
    """Nothing can be written."""

    def create(self, path: str, data: bytes) -> bool:
        raise StorageFailed("cannot write: no space left on device")


def test_a_full_disk_does_not_end_the_restarting(host: Host, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host.storage = Full(tmp_path)
    process = host.process()
    assert [type(host.life(KILLED, process)) for _ in range(3)] == [RestartAfter, RestartAfter, GiveUp]
    assert "no space left" in caplog.text


def test_an_old_wall_clock_does_not_make_a_life_shorter_than_nothing(host: Host) -> None:
    host.process().begin()
    host.clock.wall -= timedelta(days=1)
    decision = host.process().settle_vanished()
    assert isinstance(decision, RestartAfter)
    assert decision.delay_s == 10.0


def test_a_restart_is_one_line(host: Host) -> None:
    decision = RestartAfter(10.0, "failure 1 since an epoch was published", 2)
    assert announce("pv", KILLED, decision) == (
        "restarting pv in 10 s: killed by SIGKILL, after 3 s (failure 1 since an epoch was published, 2 more allowed)"
    )
    failed = ExitReport(How.FAILED, 61.0, exit_code=3, error="PublishFailed", message="away")
    unbounded = RestartAfter(0.5, "failure 9 since a life of 1 h")
    expected = "restarting pv in 0.5 s: PublishFailed: away, after 1 min 1 s (failure 9 since a life of 1 h)"
    assert announce("pv", failed, unbounded) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo", "one"),
        ("", ""),
        ("cannot reach postgresql://ann:hunter2@db/x", "cannot reach postgresql://***@db/x"),
        ("jdbc:mysql://db/x?user=ann&password=hunter2&ssl=true", "jdbc:mysql://db/x?user=ann&password=***&ssl=true"),
        ("sasl.password: 'hunter2', x", "sasl.password: ***, x"),
        ("the token was correct-horse", "the token was ***"),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_the_one_line_that_is_kept_of_an_error_has_no_secret(text: str, expected: str) -> None:
    assert first_line(text, {"DB_PASSWORD": "correct-horse", "HOME": "one", "TOKEN": "x"}) == expected
