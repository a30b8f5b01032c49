"""`CheckpointConfig`: what it takes, what it refuses, and what Spark is told by it. Nothing is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onceward import CheckpointConfig, Job
from onceward.errors import ConfigurationError, EpochTimedOut, Fenced, StagedRowsMissing, TargetUnavailable
from onceward.sinks import FileSink
from onceward.spark.checkpoint_config import BACKENDS, CHANGELOG, PARTITIONS, PROVIDER, RETAINED
from onceward.spark.defaults import (
    FILE_SYSTEM_MANAGER,
    MANAGER,
    Situation,
    refuse_contradiction,
    refuse_failures_with_state,
    settings_for,
    takes_local_manager,
)
from onceward.spark.tolerance import back_off, may_go_away, pause_left

ROCKSDB, MEMORY = BACKENDS["rocksdb"], BACKENDS["memory"]
NEW = Situation(
    chosen={},
    pinned={},
    is_new=True,
    state=True,
    holds_state=False,
    changelogs=False,
    local_master=True,
    local_files=True,
    cores=4,
)
CLUSTER = replace(NEW, local_master=False)
STATELESS = replace(CLUSTER, state=False)
OLD = replace(CLUSTER, is_new=False, holds_state=True, pinned={PROVIDER: MEMORY, PARTITIONS: "7"})
OLD_ROCKSDB = replace(OLD, pinned={PROVIDER: ROCKSDB, PARTITIONS: "7"})


def job(folder: Path, **options: Any) -> Job:
    return Job(name="j", checkpoint=folder, pipeline=lambda spark: None, sinks=[FileSink(folder / "out")], **options)


@pytest.mark.parametrize(
    "options",
    [
        {"interval": "soon"},
        {"interval": 0},
        {"interval": -1},
        {"interval": True},
        {"timeout": "0 seconds"},
        {"timeout": float("inf")},
        {"tolerable_failures": -1},
        {"tolerable_failures": 1.5},
        {"tolerable_failures": True},
        {"retained": 1},
        {"state_partitions": 0},
        {"state_partitions": "8"},
        {"on_stop": "keep"},
        {"state_backend": "RocksDB"},
        {"incremental": 1},
        {"incremental": False, "state_backend": "memory"},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_with_what_can(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CheckpointConfig(**options)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("interval", "trigger", "told"),
    [
        (None, None, None),
        (None, "available-now", "available-now"),
        ("10 seconds", None, "10000 milliseconds"),
        (0.5, None, "500 milliseconds"),
        ("10 seconds", "10 seconds", "10 seconds"),
        (90, "1 minute 30 seconds", "1 minute 30 seconds"),
        ("2 hours", "interval 120 minutes", "interval 120 minutes"),
        (0.1, "100 milliseconds", "100 milliseconds"),
    ],
)
def test_interval_and_trigger_are_one(
    tmp_path: Path, interval: str | float | None, trigger: str | None, told: str | None
) -> None:
    config = CheckpointConfig(interval=interval)
    assert job(tmp_path, trigger=trigger, checkpointing=config).checkpointing.trigger(trigger) == told


@pytest.mark.parametrize(
    "options",
    [
        {"trigger": "10 seconds", "checkpointing": CheckpointConfig(interval="11 seconds")},
        {"trigger": "available-now", "checkpointing": CheckpointConfig(interval="10 seconds")},
        {"max_unpublished_epochs": 10, "checkpointing": CheckpointConfig(retained=11)},
        {"keep_published": 3, "checkpointing": CheckpointConfig(on_stop="delete")},
        {"checkpointing": "10 seconds"},
        {"checkpointing": None},
    ],
    ids=str,
)
def test_options_of_a_job_that_contradict_each_other_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        job(tmp_path, **options)
    assert caught.value.hint


def test_as_many_epochs_are_retained_as_may_be_unpublished_and_two(tmp_path: Path) -> None:
    job(tmp_path, max_unpublished_epochs=10, checkpointing=CheckpointConfig(retained=12))


@pytest.mark.parametrize(
    ("now", "config", "told"),
    [
        (NEW, {}, {PARTITIONS: "4", PROVIDER: ROCKSDB, CHANGELOG: "true"}),
        (CLUSTER, {}, {PROVIDER: ROCKSDB, CHANGELOG: "true"}),
        (CLUSTER, {"incremental": False}, {PROVIDER: ROCKSDB, CHANGELOG: "false"}),
        (CLUSTER, {"state_backend": "memory"}, {PROVIDER: MEMORY}),
        (CLUSTER, {"state_backend": "rocksdb"}, {PROVIDER: ROCKSDB, CHANGELOG: "true"}),
        (replace(CLUSTER, chosen={PROVIDER: MEMORY}), {}, {}),
        (replace(CLUSTER, chosen={PROVIDER: ROCKSDB}), {}, {}),
        (replace(CLUSTER, chosen={CHANGELOG: "false"}), {}, {PROVIDER: ROCKSDB}),
        (
            replace(CLUSTER, chosen={PROVIDER: MEMORY}),
            {"state_backend": "rocksdb"},
            {PROVIDER: ROCKSDB, CHANGELOG: "true"},
        ),
        (replace(NEW, chosen={PARTITIONS: "9"}), {}, {PROVIDER: ROCKSDB, CHANGELOG: "true"}),
        (
            replace(NEW, chosen={PARTITIONS: "9"}),
            {"state_partitions": 3},
            {PARTITIONS: "3", PROVIDER: ROCKSDB, CHANGELOG: "true"},
        ),
        (CLUSTER, {"retained": 50, "state_backend": "memory"}, {PROVIDER: MEMORY, RETAINED: "50"}),
        # A checkpoint that is there goes on with what it has.
        (OLD, {}, {}),
        (OLD_ROCKSDB, {}, {}),
        (replace(OLD_ROCKSDB, changelogs=True), {}, {CHANGELOG: "true"}),
        (replace(OLD_ROCKSDB, changelogs=True), {"incremental": False}, {CHANGELOG: "false"}),
        (replace(OLD_ROCKSDB, changelogs=True, chosen={CHANGELOG: "false"}), {}, {}),
        # A driver that died before the first state was written had been told the defaults.
        (replace(OLD_ROCKSDB, holds_state=False), {}, {CHANGELOG: "true"}),
        # Where ours cannot be had: Spark's faster file manager is for queries without state, on files of this machine,
        # unless another one is set.
        (STATELESS, {}, {MANAGER: FILE_SYSTEM_MANAGER}),
        (replace(STATELESS, is_new=False, pinned={PROVIDER: ROCKSDB}), {}, {MANAGER: FILE_SYSTEM_MANAGER}),
        (replace(STATELESS, holds_state=True), {}, {}),
        (replace(STATELESS, local_files=False), {}, {}),
        (replace(STATELESS, chosen={MANAGER: "another"}), {}, {}),
    ],
)
def test_what_a_query_is_told_at_its_start(now: Situation, config: dict[str, Any], told: dict[str, str]) -> None:
    assert settings_for(now, CheckpointConfig(**config)) == told


@pytest.mark.parametrize(
    ("now", "taken"),
    [
        (NEW, True),
        (replace(OLD, local_master=True), True),
        (replace(STATELESS, local_master=True), True),
        (CLUSTER, False),
        (OLD, False),
        (STATELESS, False),
        (replace(NEW, local_files=False), False),
        (replace(NEW, chosen={MANAGER: "another"}), False),
    ],
)
def test_our_file_manager_is_for_local_files_where_all_who_write_them_find_it(now: Situation, taken: bool) -> None:
    assert takes_local_manager(now) == taken


@pytest.mark.parametrize(
    ("now", "config", "named"),
    [
        (OLD, {"state_backend": "rocksdb"}, ("state_backend", ROCKSDB, MEMORY)),
        (OLD, {"state_partitions": 8}, ("state_partitions", "8", "7")),
        (replace(OLD, holds_state=False), {"state_partitions": 8}, ("state_partitions", "8", "7")),
        (replace(OLD, chosen={PARTITIONS: "8"}), {}, ("the session", "8", "7")),
        (replace(OLD, chosen={PROVIDER: ROCKSDB}), {}, ("the session", ROCKSDB, MEMORY)),
        (replace(OLD, pinned={"format": "2"}, chosen={"format": "1"}), {}, ("the session", "1", "2")),
    ],
)
def test_another_setting_than_the_checkpoint_has_is_refused_with_both(
    now: Situation, config: dict[str, Any], named: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        refuse_contradiction(now, CheckpointConfig(**config))
    assert all(word in caught.value.message for word in named)
    assert "new checkpoint" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("now", "config"),
    [
        (NEW, {"state_partitions": 8}),
        (OLD, {}),
        (OLD, {"state_backend": "memory", "state_partitions": 7}),
        (replace(OLD, chosen={PARTITIONS: "7", CHANGELOG: "true"}), {}),
        # The job's own option goes before the session's setting.
        (replace(OLD, chosen={PARTITIONS: "8"}), {"state_partitions": 7}),
        (replace(OLD, holds_state=False, chosen={PARTITIONS: "8"}), {}),
        (replace(OLD, pinned={"flag": "true"}, chosen={"flag": "True"}), {}),
    ],
)
def test_what_agrees_with_the_checkpoint_is_not_refused(now: Situation, config: dict[str, Any]) -> None:
    refuse_contradiction(now, CheckpointConfig(**config))


def test_failures_are_tolerated_only_where_no_late_task_can_write_state() -> None:
    tolerant = CheckpointConfig(tolerable_failures=1)
    for now in (NEW, replace(STATELESS, holds_state=True)):
        with pytest.raises(ConfigurationError, match="keeps state"):
            refuse_failures_with_state(now, tolerant)
        refuse_failures_with_state(now, CheckpointConfig())
    refuse_failures_with_state(STATELESS, tolerant)


@pytest.mark.parametrize(
    ("error", "may"),
    [
        (EpochTimedOut("too long"), True),
        (TargetUnavailable("away"), True),
        (RuntimeError("an executor is lost"), True),
        (Fenced("another driver"), False),
        (ConfigurationError("wrong"), False),
        (StagedRowsMissing("rows"), False),
        (NameError("x"), False),
    ],
)
def test_only_what_may_go_away_is_tolerated(error: Exception, may: bool) -> None:
    assert may_go_away(error) is may


def test_pauses_grow_and_have_an_end() -> None:
    assert [back_off(failures) for failures in (0, 1, 2, 100)] == [0.5, 1.0, 2.0, 30.0]
    assert pause_left(10.0, ended=100.0, now=103.0) == 7.0
    assert pause_left(10.0, ended=100.0, now=200.0) == 0.0
    assert pause_left(10.0, ended=1000.0, now=100.0) == 10.0, "the clock was set back"
