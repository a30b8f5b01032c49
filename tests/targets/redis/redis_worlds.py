"""Worlds for the property tests: a shape of the sink, settings of the server, what its keys hold, and rows.

Everything comes from a seeded `random.Random`. The model says, in plain Python, what must stand in Redis afterwards.
"""

from __future__ import annotations

import json
import math
import random
import string
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

KINDS = ("string", "hash", "field", "zset", "counter", "field counter")
EXACT = Context(prec=2000)
OURS = ("onceward:receipts:page%20views:redis", "onceward:checkpoints:x:y:z", "onceward:receipts:other:sink:{7}")
RUBBISH = ("many", "1e-5000", "", "0x10", "nan", "9" * 400, "1e400")


@dataclass
class World:
    """`held` is what stands there before: a type, and its content. `row_keys` are the keys of the rows, or None."""

    kind: str
    options: dict[str, Any]
    batch: pa.RecordBatch
    held: dict[str, tuple[str, Any]]
    policy: str
    allowed: str | None
    row_keys: list[str | None] = field(default_factory=list)


def world_of(chance: random.Random) -> World:
    kind = chance.choice(KINDS)
    rows = chance.choice([1, 2, 5, 30, 200])
    names = ["a", "b", "c", "d", "e", *(f"{letter}:" for letter in "pq"), "{t}x", "é\n"]
    names += list(OURS) if chance.random() < 0.3 else []
    keys = [chance.choice(names) if chance.random() > 0.03 else None for _ in range(rows)]
    columns: dict[str, pa.Array] = {"k": pa.array(keys, pa.string())}
    columns["m"] = pa.array([chance.choice(["x", "y", "z", ""]) for _ in range(rows)])
    whole = pa.array([_or_null(chance, chance.randrange(-99, 99)) for _ in range(rows)], pa.int32())
    columns["v"] = _column(chance, rows) if kind in ("string", "hash", "field") else _numbers(chance, rows)
    for extra in range(chance.choice([0, 0, 1, 3, 60])):
        columns[f"w{extra}"] = _column(chance, rows) if chance.random() < 0.5 else whole
    columns["gone"] = pa.array([_or_null(chance, chance.random() < 0.2) for _ in range(rows)], pa.bool_())
    prefix = chance.choice(["", "", "k:", "{h}"])
    options: dict[str, Any] = {"key": prefix.replace("{", "{{").replace("}", "}}") + "{k}"}
    options |= {
        "string": {"type": "string", "value": "v"},
        "hash": {"type": "hash", "fields": [name for name in columns if name[0] in "vw"]},
        "field": {"type": "hash", "field": "f{m}", "value": "v"},
        "zset": {"type": "zset", "member": "f{m}", "score": "v"},
        "counter": {"type": "counter", "by": "v"},
        "field counter": {"type": "counter", "field": "f{m}", "by": "v"},
    }[kind]
    if "counter" not in kind and chance.random() < 0.3:
        options["deleted"] = "gone"
    if chance.random() < 0.2:
        options["ttl_s"] = 1000
    if chance.random() < 0.3:
        options["null_keys"] = "skip"
    options["max_rows_per_script"] = chance.choice([3, 20, None])
    held = {f"{prefix}{name}": _content(chance, kind) for name in names[:9] if chance.random() < 0.3}
    policy = chance.choice(["noeviction"] * 4 + ["volatile-lru", "volatile-ttl", "allkeys-lru", "allkeys-random"])
    allowed = chance.choice([None] * 5 + [f"{prefix}[abcd]*", f"{prefix}*"])
    full = [None if key is None else f"{prefix}{key}" for key in keys]
    return World(kind, options, pa.record_batch(columns), held, policy, allowed, full)


def _or_null(chance: random.Random, value: Any) -> Any:
    return value if chance.random() > 0.1 else None


def _column(chance: random.Random, rows: int) -> pa.Array:
    """Of any type that has a text."""
    start = datetime(1970, 1, 1, tzinfo=UTC)
    makers: list[tuple[pa.DataType, Any]] = [
        (pa.int64(), lambda: chance.randrange(-(2**63), 2**63)),
        (pa.uint64(), lambda: chance.randrange(2**64)),
        (pa.bool_(), lambda: chance.random() < 0.5),
        (pa.string(), lambda: "".join(chance.choices(string.printable + "é数🦆", k=chance.randrange(9)))),
        (pa.binary(), lambda: chance.randbytes(chance.randrange(300))),
        (pa.float64(), lambda: chance.choice([chance.uniform(-1, 1) * 10 ** chance.randrange(-300, 300), math.inf])),
        (pa.decimal128(38, 12), lambda: EXACT.scaleb(Decimal(chance.randrange(10**37)), -12)),
        (pa.date32(), lambda: date(1970, 1, 1) + timedelta(days=chance.randrange(-9999, 99999))),
        (pa.timestamp("us", "UTC"), lambda: start + timedelta(microseconds=chance.randrange(2**51))),
        (pa.list_(pa.int64()), lambda: [_or_null(chance, chance.randrange(9)) for _ in range(chance.randrange(4))]),
    ]
    kind, make = chance.choice(makers)
    return pa.array([_or_null(chance, make()) for _ in range(rows)], kind)


def _numbers(chance: random.Random, rows: int) -> pa.Array:
    """Amounts or scores, some of which nothing can hold."""
    bits = chance.choice([7, 31, 53, 54, 62, 63])
    digits = chance.choice([3, 15, 18, 38])
    scale = chance.randrange(digits + 1)
    makers: list[tuple[pa.DataType, Any]] = [
        (pa.int64(), lambda: chance.randrange(-(2**bits), 2**bits)),
        (pa.uint64(), lambda: chance.randrange(2 ** chance.choice([8, 53, 64]))),
        (pa.decimal128(digits, scale), lambda: EXACT.scaleb(Decimal(chance.randrange(10**digits)), -scale)),
        (
            pa.float64(),
            lambda: chance.choice([0.1, 2.5, -7.0, chance.uniform(-1, 1) * 10 ** chance.randrange(-320, 299)]),
        ),
        (pa.float64(), lambda: chance.choice([0.5, 0.25, 1e299, math.nan, math.inf, -math.inf])),
    ]
    kind, make = chance.choice(makers)
    return pa.array([_or_null(chance, make()) for _ in range(rows)], kind)


def _content(chance: random.Random, kind: str) -> tuple[str, Any]:
    number = chance.choice(["0", "7", "-12", "1.5", "1e3", str(2**63 - 1), str(-(2**62)), *RUBBISH])
    natural = {
        "string": ("string", "old"),
        "hash": ("hash", {"v": "old", "other": "stays"}),
        "field": ("hash", {"fx": "old", "other": "stays"}),
        "zset": ("zset", {"fx": 9.0}),
        "counter": ("string", number),
        "field counter": ("hash", {"fx": number, "other": "stays"}),
    }[kind]
    return chance.choice([natural] * 4 + [("list", ["somebody's"]), ("string", "text")])


# --- the model ----------------------------------------------------------------------------------


def expected(world: World, rows: list[int]) -> dict[str, tuple[str, Any]]:
    """What stands there after these rows, in order; sums are exact decimals."""
    state = {
        key: (kind, dict(content) if isinstance(content, dict) else content)
        for key, (kind, content) in world.held.items()
    }
    table = {name: world.batch.column(name) for name in world.batch.schema.names}
    for row in rows:
        key = world.row_keys[row]
        if key is None:
            continue
        _write(world, state, key, row, table)
    return {key: value for key, value in state.items() if value[1] != {}}


def _write(world: World, state: dict[str, tuple[str, Any]], key: str, row: int, table: dict[str, pa.Array]) -> None:
    is_gone = world.options.get("deleted") is not None and table["gone"][row].as_py() is True
    value, member = table["v"][row].as_py(), f"f{table['m'][row].as_py()}"
    if world.kind == "string":
        state.pop(key, None)
        if value is not None and not is_gone:
            state[key] = "string", value
    elif world.kind == "hash":
        if is_gone:
            state.pop(key, None)
            return
        content = state.setdefault(key, ("hash", {}))[1]
        for name in world.options["fields"]:
            content.pop(name, None)
            if (one := table[name][row].as_py()) is not None:
                content[name] = one
    elif world.kind in ("field", "zset"):
        content = state.setdefault(key, ("hash" if world.kind == "field" else "zset", {}))[1]
        content.pop(member, None)
        if value is not None and not is_gone:
            content[member] = value
    elif value is not None:
        by = Decimal(pa.scalar(value, table["v"].type).cast(pa.string()).as_py()) if isinstance(value, float) else value
        if world.kind == "counter":
            before = state.get(key, ("string", "0"))[1]
            state[key] = "string", EXACT.add(Decimal(before), Decimal(by))
        else:
            content = state.setdefault(key, ("hash", {}))[1]
            content[member] = EXACT.add(Decimal(content.get(member, "0")), Decimal(by))


def is_same(found: bytes | float, sent: Any) -> bool:
    """Whether what stands there reads as what was sent."""
    if isinstance(found, float):
        return found == sent if isinstance(sent, (int, float)) else Decimal(repr(found)) == sent
    if isinstance(sent, bytes):
        return found == sent
    text = found.decode()
    match sent:
        case bool():
            return text == str(int(sent))
        case str():
            return text == sent
        case float():
            return float(text) == sent or (math.isnan(sent) and math.isnan(float(text)))
        case int() | Decimal():
            return "e" not in text.lower() and Decimal(text) == Decimal(sent)
        case datetime():
            return datetime.fromisoformat(text) == sent
        case date():
            return text == sent.isoformat()
        case list():
            return bool(json.loads(text) == sent)
    raise AssertionError(f"no rule for {sent!r}")
