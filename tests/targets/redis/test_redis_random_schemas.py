"""Drawn worlds: what is sent stands there, or it was refused by name; and the way from a rejection to a running job.

`ONCEWARD_SEED=123 pytest tests/targets/redis/test_redis_random_schemas.py -k replay` plays one of them again.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from redis_worlds import World, expected, is_same, world_of
from shapes import JOB, Reader, send, slot_of

from onceward.admin import divert_poison, find_poison
from onceward.errors import RowsRejected, TargetRefused
from onceward.recovery import look_at
from onceward.sinks import RedisSink
from onceward.testing import Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.servers import RedisServer

SEED = 20261116
WORLDS = 200
SOAK = 2_000

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def standing(client: Any, key: str) -> tuple[str, Any] | None:
    kind = client.type(key).decode()
    match kind:
        case "string":
            return kind, client.get(key)
        case "hash":
            return kind, {name.decode(): value for name, value in client.hgetall(key).items()}
        case "zset":
            return kind, {name.decode(): score for name, score in client.zrange(key, 0, -1, withscores=True)}
        case "list":
            return kind, client.lrange(key, 0, -1)
    return None


def put(client: Any, key: str, kind: str, content: Any) -> None:
    match kind:
        case "string":
            client.set(key, content)
        case "hash":
            client.hset(key, mapping=content)
        case "zset":
            client.zadd(key, content)
        case "list":
            client.rpush(key, *content)


def differences(client: Any, world: World, rows: list[int]) -> list[str]:
    wanted = expected(world, rows)
    found = {key.decode() for key in client.scan_iter("*", count=1000) if not key.startswith(b"onceward:")}
    told = [f"{key!r} is there" for key in found - set(wanted)]
    for key, (kind, content) in wanted.items():
        stands = standing(client, key)
        if stands is None or stands[0] != kind:
            told.append(f"{key!r} holds {stands}, not {kind} {content!r}")
        elif isinstance(content, dict):
            names = {*content, *stands[1]}
            told += [
                f"{key!r} {name!r}: {stands[1].get(name)!r} for {content.get(name)!r}"
                for name in names
                if name not in content or name not in stands[1] or not is_same(stands[1][name], content[name])
            ]
        elif kind == "list":
            told += [] if [one.decode() for one in stands[1]] == content else [f"{key!r} changed"]
        elif not is_same(stands[1], content):
            told.append(f"{key!r}: {stands[1]!r} for {content!r}")
    return told


def play(seed: int, server: RedisServer, client: Any) -> str:
    """One world; what became of it, in a word. Raises what is wrong, with the seed."""
    world = world_of(random.Random(seed))
    client.flushdb()
    for key, (kind, content) in world.held.items():
        put(client, key, kind, content)
    client.config_set("maxmemory-policy", world.policy)
    url = server.url
    if world.allowed is not None:
        rules = ("reset", "on", "nopass", "+@all", "~onceward:*", f"~{world.allowed}")
        client.execute_command("ACL", "SETUSER", "drawn", *rules)
        url = url.replace("redis://", "redis://drawn:x@")
    sink = RedisSink(url, name="redis", **world.options)
    before = {key: client.dump(key) for key in client.scan_iter("*")}
    try:
        sink.check(world.batch.schema, output_mode="append")
    except TargetRefused:
        assert world.policy.startswith("allkeys") or world.allowed is not None, f"seed {seed}: refused without a reason"
        return "refused at the start"
    assert not world.policy.startswith("allkeys"), f"seed {seed}: receipts may be evicted"
    named = {row.row for row in sink.find_rejected([slot_of(sink, world.batch)], JOB, 7)}
    assert {key: client.dump(key) for key in client.scan_iter("*")} == before, f"seed {seed}: looking changed something"
    rows = [row for row in range(world.batch.num_rows) if row not in named]
    kept = world.batch.take(pa.array(rows, pa.int64()))
    if named:
        with pytest.raises(RowsRejected):
            send(sink, slot_of(sink, world.batch, epoch=5), epoch=5)
        for key in client.scan_iter("*"):
            client.delete(key)
        for key, dumped in before.items():
            client.restore(key, 0, dumped)
    assert send(sink, slot_of(sink, kept)), f"seed {seed}"
    assert send(sink, slot_of(sink, kept)), f"seed {seed}: again"
    told = differences(client, world, rows)
    assert not told, f"seed {seed}, {world.kind}, {world.batch.schema.field('v').type}: {told[:5]}"
    return "rows rejected" if named else "all stored"


def play_all(seeds: range, server: RedisServer, client: Any) -> Counter[str]:
    try:
        return Counter(play(seed, server, client) for seed in seeds)
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.acl_deluser("drawn")


def test_what_is_sent_stands_there_or_was_refused_by_name(
    server: RedisServer, reader: Reader, record_sweep: list[str]
) -> None:
    counts = play_all(range(SEED, SEED + WORLDS), server, reader.client)
    assert min(counts[one] for one in ("refused at the start", "rows rejected", "all stored")) > WORLDS / 20
    record_sweep.append(f"Redis, drawn worlds from seed {SEED}: {dict(counts)}")


@pytest.mark.soak
def test_two_thousand_worlds(server: RedisServer, reader: Reader, record_sweep: list[str]) -> None:
    counts = play_all(range(SEED + WORLDS, SEED + WORLDS + SOAK), server, reader.client)
    record_sweep.append(f"Redis, drawn worlds from seed {SEED + WORLDS}: {dict(counts)}")


@pytest.mark.skipif("ONCEWARD_SEED" not in os.environ, reason="replays the seed in ONCEWARD_SEED")
def test_replay_of_one_seed(server: RedisServer, reader: Reader) -> None:
    seed = int(os.environ["ONCEWARD_SEED"])
    print(world_of(random.Random(seed)))
    play_all(range(seed, seed + 1), server, reader.client)


# --- from a rejection to a running job ----------------------------------------------------------

FAULTS = ("list", "rubbish", "full", "no right", "none")


def spoil(client: Any, key: str, fault: str) -> None:
    match fault:
        case "list":
            client.rpush(key, "somebody's")
        case "rubbish":
            client.set(key, "many")
        case "full":
            client.set(key, str(2**63 - 1))


@pytest.mark.parametrize("number", range(12))
def test_every_row_at_fault_is_named_and_taken_out_and_the_job_runs_on(
    server: RedisServer, reader: Reader, tmp_path: Path, number: int
) -> None:
    """Each row of the harness has a number, and each number a counter of its own: some of them are spoilt."""
    print(f"seed {SEED + number}")
    chance, client = random.Random(SEED + number), reader.client
    faults = {row: chance.choice(FAULTS) if chance.random() < 0.4 else "none" for row in range(20)}
    faults[chance.randrange(20)] = chance.choice(FAULTS[:3])
    prefix = chance.choice(["n:", ""])
    for row, fault in faults.items():
        spoil(client, f"{prefix}{row}", fault)
    bad = {row for row, fault in faults.items() if fault != "none"}
    forbidden = [row for row, fault in faults.items() if fault == "no right"]
    patterns = [f"~{prefix}{row}" for row in range(20) if row not in forbidden]
    client.execute_command("ACL", "SETUSER", "drawn", "reset", "on", "nopass", "+@all", "~onceward:*", "~n:", *patterns)
    url = server.url.replace("redis://", "redis://drawn:x@")
    sink = RedisSink(
        url, type="counter", key=f"{prefix}{{id}}", max_rows_per_script=chance.choice([1, 3, None]), name="redis"
    )

    def counted() -> dict[int, int]:
        keys = {row: f"{prefix}{row}" for row in range(20) if row not in bad}
        return {row: int(value) for row, value in ((row, client.get(key)) for row, key in keys.items()) if value}

    def read() -> list[dict[str, Any]]:
        return [{"id": row} for row, times in counted().items() for _ in range(times)]

    harness = Harness(SinkUnderTest(sink, read, ordered=False), source=Source(ends=(12, 20), keys=3), rows_in_a_batch=4)
    try:
        ending, taken_out = harness.life(), set[int]()
        for _ in range(3):
            if isinstance(ending, Finished):
                break
            assert isinstance(ending, Failed)
            assert isinstance(ending.error, RowsRejected), ending
            context, _ = look_at(
                sinks=harness.sinks,
                storage=harness.storage,
                decisions=harness.logs,
                directory_id=harness.directory_id,
                clock=harness.clock,
            )
            found = {int(str(row.values["id"])) for row in find_poison(context)}
            assert found, "stopped for rows, and none is named"
            divert_poison(context, tmp_path)
            taken_out |= found
            ending = harness.life()
        assert isinstance(ending, Finished), ending
        assert taken_out == bad
        assert counted() == {row: 1 for row in range(20) if row not in bad}
    finally:
        client.acl_deluser("drawn")


def test_a_world_is_drawn_twice_alike() -> None:
    for seed in range(20):
        first, second = (world_of(random.Random(seed)) for _ in range(2))
        assert first.batch.equals(second.batch) or "nan" in str(first.batch.column("v"))
        assert (first.options, first.held) == (second.options, second.held)
