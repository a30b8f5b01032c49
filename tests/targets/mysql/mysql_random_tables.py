"""Random tables, and rows for them: column types, defaults, collations and indexes that people have, fitting or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

Draw = Callable[[Random], Any]

_LETTERS = [
    "a",
    "A",
    "b",
    "ab",
    "x,y",
    "b,a",
    "a,b",
    "3",
    "1",
    "0",
    "",
    " ",
    "a ",
    "a  ",
    "ä",
    "é",
    "ß",
    "ss",
    "数",
    "🦆",
]
_LETTERS += [
    "\\",
    "\\N",
    "NULL",
    "\t",
    "\n",
    "\0",
    "'",
    "abc",
    "abc ",
    "ABC",
    "annika",
    "anna",
    "onceward_row",
    "?",
    "{}",
]
_MOMENTS = [
    datetime(1970, 1, 1),
    datetime(1970, 1, 1, 0, 0, 1),
    datetime(2038, 1, 19, 3, 14, 7),
    datetime(2038, 1, 19, 4),
]
_MOMENTS += [datetime(2026, 3, 29, 2, 30), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)]


def texts(random: Random) -> str:
    text = random.choice(_LETTERS)
    return text * random.choice([1, 1, 1, 2]) + " " * random.choice([0] * 12 + [1, 300])


def moments(random: Random) -> datetime:
    some = datetime(2026, 1, 1) + timedelta(microseconds=random.randrange(10**15))
    return random.choice([*_MOMENTS, some, some, some.replace(microsecond=0)])


def integers(bits: int, *, signed: bool = True) -> Draw:
    low = -(1 << (bits - 1)) if signed else 0
    return lambda random: random.choice([low, low + (1 << bits) - 1, 0, 1, 3, random.randrange(low, low + (1 << bits))])


def floats(random: Random) -> float:
    odd = [0.0, -0.0, 0.1, 1.005, 1e300, 5e-324, -1.5, 2.5, float("nan"), float("inf")]
    return random.choice([*odd[: random.choice([8, 8, 10])], random.uniform(-1e6, 1e6)])


def float32(random: Random) -> float:
    value = floats(random)
    return float(pa.array([value if abs(value) < 3e38 or not math.isfinite(value) else 1.5], pa.float32())[0].as_py())


STREAM: dict[str, tuple[pa.DataType, Draw]] = {
    "bool": (pa.bool_(), lambda random: random.random() < 0.5),
    "int8": (pa.int8(), integers(8)),
    "int32": (pa.int32(), integers(32)),
    "int64": (pa.int64(), integers(64)),
    "uint16": (pa.uint16(), integers(16, signed=False)),
    "uint64": (pa.uint64(), integers(64, signed=False)),
    "float": (pa.float32(), float32),
    "double": (pa.float64(), floats),
    "decimal": (pa.decimal128(9, 3), lambda random: Decimal(random.randrange(-(10**9) + 1, 10**9)).scaleb(-3)),
    "string": (pa.string(), texts),
    "large string": (pa.large_string(), texts),
    "few strings": (pa.dictionary(pa.int32(), pa.string()), texts),
    "binary": (pa.binary(), lambda random: random.choice([b"", b"\0", b"a ", b"abc", b"\xff\n\t\\N", b"x" * 300])),
    "four bytes": (pa.binary(4), lambda random: random.choice([b"abcd", b"\0\0\0\0", b"ab  "])),
    "date": (pa.date32(), lambda random: random.choice([moments(random).date(), date(1, 1, 1), date(9999, 12, 31)])),
    "instant": (pa.timestamp("us", "UTC"), lambda random: moments(random).replace(tzinfo=UTC)),
    "local": (pa.timestamp("us"), moments),
    "nanoseconds": (
        pa.timestamp("ns"),
        lambda random: random.choice([0, 1_000, 1_001, 10**18 + random.randrange(999)]),
    ),
    "time": (pa.time64("us"), lambda random: random.choice([time(23, 59, 59, 999_999), time(1, 2, 3), time(0)])),
    "time in ns": (pa.time64("ns"), lambda random: random.choice([0, 1_000, 1_001, 86_399_999_999_999])),
    "array": (pa.list_(pa.int32()), lambda random: random.choice([[], [1, None], [3]])),
    "struct": (pa.struct([("a", pa.string()), ("b", pa.float64())]), lambda random: {"a": texts(random), "b": 0.1}),
}

_CHARSETS = ["utf8mb4 COLLATE utf8mb4_general_ci", "utf8mb4 COLLATE utf8mb4_bin", "utf8mb4 COLLATE utf8mb4_nopad_bin"]
_CHARSETS += ["utf8mb4 COLLATE utf8mb4_unicode_ci", "utf8mb3", "latin1", "ascii", "ucs2", "utf16", "cp932", "latin2"]
_NUMBERS = ["TINYINT", "SMALLINT", "INT", "BIGINT", "MEDIUMINT", "BIT(1)", "BIT(8)", "INT ZEROFILL", "BIGINT UNSIGNED"]
_NUMBERS += ["SMALLINT UNSIGNED", "DECIMAL(9,3)", "DECIMAL(20,0)", "DECIMAL(6,2)", "DECIMAL(9,3) UNSIGNED", "YEAR"]
_NUMBERS += ["DOUBLE", "FLOAT", "DOUBLE(10,2)", "FLOAT(7,3)", "DOUBLE UNSIGNED", "BOOLEAN", "INT UNSIGNED"]
_TEXTS = [
    "CHAR(4)",
    "CHAR(40)",
    "VARCHAR(3)",
    "VARCHAR(400)",
    "TINYTEXT",
    "TEXT",
    "LONGTEXT",
    "ENUM('a','b','x,y','3','')",
]
_TEXTS += ["SET('a','b','3')", "JSON", "ENUM('A','''','\\\\','ab','c')"]
_BYTES = ["BINARY(4)", "BINARY(9)", "VARBINARY(4)", "VARBINARY(400)", "TINYBLOB", "BLOB", "LONGBLOB"]
_TIMES = ["DATE", "DATETIME", "DATETIME(3)", "DATETIME(6)", "TIMESTAMP", "TIMESTAMP(6)", "TIME", "TIME(3)", "TIME(6)"]
_NESTED = ["JSON", "LONGTEXT", "VARCHAR(400)"]
_OTHERS = ["JSON", "UUID", "INET6", "GEOMETRY"]
_WHOLE = [
    "BIGINT",
    "BIGINT",
    "DECIMAL(20,0)",
    "BIGINT ZEROFILL",
    "INT",
    "BIGINT UNSIGNED",
    "DOUBLE",
    "SMALLINT",
    "DECIMAL(9,3)",
]
_FRACTIONS = ["DOUBLE", "DOUBLE", "FLOAT", "DOUBLE(10,2)", "DOUBLE UNSIGNED", "FLOAT(7,3)"]
_DECIMALS = ["DECIMAL(9,3)", "DECIMAL(30,10)", "DECIMAL(9,3) UNSIGNED", "DECIMAL(9,2)"]
_INSTANTS = ["DATETIME(6)", "TIMESTAMP(6)", "TIMESTAMP(6)", "DATETIME(3)", "DATETIME"]
_DAYS = ["DATE", "DATETIME", "DATETIME(3)", "TIMESTAMP"]
_CLOCKS = ["TIME(6)", "TIME(6)", "TIME(3)", "TIME"]
_LIKELY = {
    "bool": ["BOOLEAN", "BIT(1)", "BIT(8)", "BIGINT", "INT UNSIGNED"],
    **dict.fromkeys(["int8", "int32", "int64", "uint16"], _WHOLE),
    "uint64": ["BIGINT UNSIGNED", "DECIMAL(20,0)", "DECIMAL(20,0) UNSIGNED", "BIGINT"],
    **dict.fromkeys(["float", "double"], _FRACTIONS),
    "decimal": _DECIMALS,
    **dict.fromkeys(["string", "large string", "few strings"], _TEXTS),
    **dict.fromkeys(["binary", "four bytes"], _BYTES),
    "date": _DAYS,
    **dict.fromkeys(["instant", "local", "nanoseconds"], _INSTANTS),
    **dict.fromkeys(["time", "time in ns"], _CLOCKS),
    **dict.fromkeys(["array", "struct"], _NESTED),
}
_NAMES = ["a", "B", "name", "at", "onceward_row", "ONCEWARD_RANK", "number", "is_there", "key", "sp ace", "ü"]
KEYS = ("int32", "int64", "string", "few strings", "date", "decimal", "four bytes", "binary", "bool", "instant")


@dataclass
class RandomTable:
    """A table, the stream for it, and rows."""

    mode: str
    schema: pa.Schema
    rows: list[dict[str, Any]]
    create: str
    then: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)


def random_table(random: Random) -> RandomTable:
    mode = random.choice(["append", "append", "upsert", "upsert", "replace"])
    names = random.sample(_NAMES, random.choice([1, 1, 2, 2, 3, 4]))
    kinds = [random.choice(list(STREAM)) for _ in names]
    keys: list[str] = []
    if mode == "upsert":
        keys = names[: random.choice([1, 1, 2])]
        kinds = [random.choice(KEYS) if name in keys else kind for name, kind in zip(names, kinds, strict=True)]
    columns = [
        f"`{name}` {_declared(random, kind, is_key=name in keys)}" for name, kind in zip(names, kinds, strict=True)
    ]
    columns += _indexes(random, names, keys)
    columns += [random.choice(["extra INT", "extra INT NOT NULL DEFAULT 5", "extra TIMESTAMP NOT NULL DEFAULT NOW()"])]
    columns += random.choices([[], ["must INT NOT NULL"], ["made INT AS (1)"]], [30, 1, 1])[0]
    schema = pa.schema([(name, STREAM[kind][0]) for name, kind in zip(names, kinds, strict=True)])
    table = RandomTable(
        mode, schema, _rows(random, names, kinds), f"CREATE OR REPLACE TABLE `rows` ({', '.join(columns)})"
    )
    table.options = {"keys": keys} if keys else {}
    table.options |= {"two_phase": False} if mode == "append" and random.random() < 0.5 else {}
    if keys and random.random() < 0.4:
        table.options["order_by"] = random.choice(names)
    if random.random() < 0.04:
        event = random.choice(["BEFORE INSERT", "AFTER INSERT", "BEFORE UPDATE"])
        table.then.append(f"CREATE TRIGGER tell {event} ON `rows` FOR EACH ROW SET @told = 1")
    if random.random() < 0.02:
        table.then.append("ALTER TABLE `rows` ENGINE=MyISAM")
    return table


def _declared(random: Random, kind: str, *, is_key: bool) -> str:
    every = [*_NUMBERS, *_TEXTS, *_BYTES, *_TIMES, *_OTHERS]
    declared = random.choice(every if random.random() < 0.04 else _LIKELY[kind])
    if is_key:
        declared = {"TINYTEXT": "VARCHAR(9)", "TEXT": "VARCHAR(99)", "LONGTEXT": "CHAR(9)", "JSON": "VARCHAR(9)"}.get(
            declared, declared
        )
        declared = (
            declared.replace("(400)", "(150)").replace("LONGBLOB", "VARBINARY(9)").replace("TINYBLOB", "BINARY(4)")
        )
        declared = "VARBINARY(9)" if declared == "BLOB" else declared
    if declared in _TEXTS or declared.startswith(("CHAR", "VARCHAR")):
        declared += f" CHARACTER SET {random.choice(_CHARSETS)}" if random.random() < 0.7 else ""
    null = random.choice([" NULL", " NULL", " NOT NULL"])
    if declared.startswith("TIMESTAMP") and null == " NOT NULL":
        digits = declared.removeprefix("TIMESTAMP")
        null = random.choice([null, f" NOT NULL DEFAULT NOW{digits or '()'} ON UPDATE NOW{digits or '()'}"])
    return declared + null


def _indexes(random: Random, names: list[str], keys: list[str]) -> list[str]:
    found = []
    quoted = ", ".join(f"`{key}`" for key in keys)
    if keys and random.random() < 0.95:
        found.append(f"{random.choice(['UNIQUE', 'PRIMARY KEY'])} ({quoted})")
    if random.random() < 0.12:
        part = random.choice(["", "(1)", "(3)", "(3)"])
        found.append(f"UNIQUE other (`{random.choice(names)}`{part})")
    if random.random() < 0.15:
        found.append("counted BIGINT AUTO_INCREMENT" + random.choice([" UNIQUE", ", KEY (counted)"]))
    return found


def _rows(random: Random, names: list[str], kinds: list[str]) -> list[dict[str, Any]]:
    nulls = random.choice([0.0, 0.0, 0.2])
    return [
        {
            name: None if random.random() < nulls else STREAM[kind][1](random)
            for name, kind in zip(names, kinds, strict=True)
        }
        for _ in range(random.randint(1, 6))
    ]
