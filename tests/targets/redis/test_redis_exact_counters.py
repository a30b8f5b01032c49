"""Scenario 94: counters are exact: whole numbers up to 64 bits, decimals, and the shortest text of doubles."""

import os
import random
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from shapes import JOB, Reader, send, slot_of, write

from onceward.errors import RowsRejected
from onceward.sinks import RedisSink
from onceward.testing.servers import RedisServer

SEED = int(os.environ.get("ONCEWARD_SEED", "20261116"))
EXACT = Context(prec=2000)


def counters(server: RedisServer, **options: Any) -> list[RedisSink]:
    """As a key, and as a field of a hash."""
    return [
        RedisSink(server.url, type="counter", key="c:{k}", by="by", name="keys", **options),
        RedisSink(server.url, type="counter", key="h", field="{k}", by="by", name="fields", **options),
    ]


def held(reader: Reader, name: str) -> tuple[str, str]:
    values = reader.client.get(f"c:{name}"), reader.client.hget("h", name)
    return tuple(value.decode() for value in values)


def hold(reader: Reader, name: str, text: str) -> None:
    reader.client.set(f"c:{name}", text)
    reader.client.hset("h", name, text)


def plain(number: Decimal) -> str:
    """As Redis itself writes fractions: without an exponent, and without zeros that say nothing."""
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def test_a_cent_added_twenty_thousand_times_is_two_hundred(server: RedisServer, reader: Reader) -> None:
    batch = pa.record_batch({"k": ["a"] * 20_000, "by": pa.array([Decimal("0.01")] * 20_000, pa.decimal128(10, 2))})
    for sink in counters(server):
        assert write(sink, batch)
    assert held(reader, "a") == ("200", "200")


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_that_fill_every_limb_lose_no_digit(server: RedisServer, reader: Reader, sign: int) -> None:
    """Twenty thousand additions of nines: a double that was not carried in time would round."""
    most = EXACT.multiply(Decimal("9" * 28 + "." + "9" * 10), sign)
    batch = pa.record_batch({"k": ["a"] * 20_000, "by": pa.array([most] * 20_000, pa.decimal128(38, 10))})
    for sink in counters(server, max_rows_per_script=None):
        assert write(sink, batch)
    assert held(reader, "a") == (plain(EXACT.multiply(most, 20_000)),) * 2


def test_decimals_of_38_and_76_digits_keep_every_digit(server: RedisServer, reader: Reader) -> None:
    for name, most, kind in (
        ("38", Decimal("9" * 38), pa.decimal128(38, 0)),
        ("tiny", Decimal("0." + "0" * 37 + "1"), pa.decimal128(38, 38)),
        ("76", Decimal("9" * 40 + "." + "9" * 36), pa.decimal256(76, 36)),
    ):
        batch = pa.record_batch({"k": [name] * 3, "by": pa.array([most, most, most.copy_negate()], kind)})
        for sink in counters(server):
            assert write(sink, batch, epoch=len(name) * 1000 + len(plain(most)))
        assert held(reader, name) == (plain(most),) * 2


def test_doubles_are_added_by_their_shortest_text(server: RedisServer, reader: Reader) -> None:
    batch = pa.record_batch({"k": ["a"] * 1000, "by": pa.array([0.1] * 1000)})
    for sink in counters(server):
        assert write(sink, batch)
    assert held(reader, "a") == ("100", "100")
    small = pa.record_batch({"k": ["b"] * 4, "by": pa.array([1e299, 5e-324, -1e299, 2.5e-7])})
    for sink in counters(server):
        assert write(sink, small, epoch=8)
    assert held(reader, "b") == (plain(EXACT.add(Decimal("5e-324"), Decimal("2.5e-7"))),) * 2


@pytest.mark.parametrize("most", [2**63 - 1, -(2**63)])
def test_whole_numbers_are_exact_up_to_the_last_of_64_bits(server: RedisServer, reader: Reader, most: int) -> None:
    step = 1 if most > 0 else -1
    batch = pa.record_batch({"k": ["a"] * 4, "by": pa.array([most - step, -(most - step), most - 3 * step, 3 * step])})
    for sink in counters(server):
        assert write(sink, batch)
    assert held(reader, "a") == (str(most),) * 2
    beyond = pa.record_batch({"k": ["b", "a", "c"], "by": pa.array([1, step, 1], pa.int64())})
    for sink in counters(server):
        with pytest.raises(RowsRejected, match="more than a counter can hold"):
            write(sink, beyond, epoch=8)
        assert [row.row for row in sink.find_rejected([slot_of(sink, beyond, epoch=8)], JOB, 8)] == [1]
    assert held(reader, "a") == (str(most),) * 2
    assert reader.client.get("c:b") is None


def test_an_amount_beyond_64_bits_is_a_rejected_row_and_no_torn_part(server: RedisServer, reader: Reader) -> None:
    hold(reader, "b", "-9000000000000000000")
    batch = pa.record_batch({"k": ["a", "b"], "by": pa.array([1, 2**63 + 5], pa.uint64())})
    for sink in counters(server):
        with pytest.raises(RowsRejected, match="more would be added than a counter can hold"):
            write(sink, batch)
        assert [row.row for row in sink.find_rejected([slot_of(sink, batch)], JOB, 7)] == [1]
    assert reader.client.get("c:a") is None


RUBBISH = [
    *("1e-5000", "1e5000", "many", "", " 5", "5 ", "0x10", "inf", "-inf", "nan", ".5", "1e", "--1", "9" * 301),
    *("0." + "1" * 341, "1e-341", "5\n", "1\x002", "9e300", "1e99999999999999999999"),
]


@pytest.mark.parametrize("text", RUBBISH)
def test_a_counter_that_holds_rubbish_is_a_rejected_row_and_no_torn_part(
    server: RedisServer, reader: Reader, text: str
) -> None:
    hold(reader, "b", text)
    batch = pa.record_batch({"k": ["a", "b", "c"], "by": pa.array([0.5, 0.5, 0.5])})
    for sink in counters(server):
        with pytest.raises(RowsRejected, match="not a number that can be counted on"):
            write(sink, batch)
        found = sink.find_rejected([slot_of(sink, batch)], JOB, 7)
        assert [row.row for row in found] == [1], found
        assert list(sink.receipts(JOB)) == []
        kept = batch.filter(pa.array([True, False, True]))
        assert write(sink, kept, epoch=8)
    assert held(reader, "a") == ("0.5", "0.5")
    assert held(reader, "b") == (text, text)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("7", "7.5"),
        ("-0.5", "0"),
        ("-0", "0.5"),
        ("+4", "4.5"),
        ("007", "7.5"),
        ("1e3", "1000.5"),
        ("1.5E-3", "0.5015"),
        ("25e+1", "250.5"),
        ("5.", "5.5"),
        ("199.99999999999996775", "200.49999999999996775"),
        ("-" + "9" * 299, "-" + "9" * 298 + "8.5"),
    ],
)
def test_what_other_clients_wrote_as_a_number_is_counted_on(
    server: RedisServer, reader: Reader, text: str, after: str
) -> None:
    hold(reader, "a", text)
    for sink in counters(server):
        assert write(sink, pa.record_batch({"k": ["a"], "by": pa.array([Decimal("0.5")], pa.decimal128(3, 1))}))
    assert held(reader, "a") == (after, after)


def test_a_counter_with_fractions_keeps_the_time_to_live_that_somebody_gave_it(
    server: RedisServer, reader: Reader
) -> None:
    hold(reader, "a", "1.5")
    reader.client.expire("c:a", 1000)
    reader.client.expire("h", 1000)
    for sink in counters(server):
        assert write(sink, pa.record_batch({"k": ["a"], "by": [0.25]}))
    assert held(reader, "a") == ("1.75", "1.75")
    assert min(reader.client.ttl("c:a"), reader.client.ttl("h")) > 900


def amounts(chance: random.Random) -> tuple[pa.DataType, list[Any]]:
    """A type of column, and a way to draw from it."""
    count = chance.randrange(1, 120)
    kind = chance.choice(["whole", "unsigned", "decimal", "wide", "double", "single"])
    if kind == "whole":
        widest = chance.choice([7, 31, 52, 54, 62, 63])
        return pa.int64(), [chance.randrange(-(2**widest), 2**widest) for _ in range(count)]
    if kind == "unsigned":
        return pa.uint64(), [chance.randrange(2 ** chance.choice([8, 53, 63, 64])) for _ in range(count)]
    if kind in ("decimal", "wide"):
        digits = chance.randrange(1, 39) if kind == "decimal" else chance.randrange(39, 77)
        scale = chance.randrange(0, digits + 1)
        make = pa.decimal128 if kind == "decimal" else pa.decimal256
        drawn = [chance.randrange(-(10**digits) + 1, 10**digits) for _ in range(count)]
        return make(digits, scale), [EXACT.scaleb(Decimal(number), -scale) for number in drawn]
    drawn_doubles = [chance.choice([1, -1]) * chance.random() * 10 ** chance.randrange(-320, 299) for _ in range(count)]
    doubles = [chance.choice([number, round(number, 2), 0.1, -0.0]) for number in drawn_doubles]
    if kind == "single":
        return pa.float32(), [float(max(-1e38, min(1e38, number))) for number in doubles]
    return pa.float64(), doubles


def exact(kind: pa.DataType, value: Any) -> Decimal:
    """A double is the shortest decimal that names it."""
    if pa.types.is_floating(kind):
        return Decimal(pa.scalar(value, kind).cast(pa.string()).as_py())
    return Decimal(value)


def test_sums_drawn_by_chance_are_those_of_exact_arithmetic(server: RedisServer, reader: Reader) -> None:
    """In parts of any size; a row that does not fit is named, and without it the sum is right."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    rejections = 0
    for number in range(60):
        reader.client.flushdb()
        kind, drawn = amounts(chance)
        column = pa.array([value if chance.random() > 0.05 else None for value in drawn], kind)
        batch = pa.record_batch({"k": [chance.choice("ab") for _ in drawn], "by": column})
        for sink in counters(server, max_rows_per_script=chance.choice([3, 7, 50, None])):
            found = {row.row for row in sink.find_rejected([slot_of(sink, batch)], JOB, 7)}
            rejections += len(found)
            if found:
                with pytest.raises(RowsRejected):
                    send(sink, slot_of(sink, batch, epoch=6), epoch=6)
                for key in reader.names():
                    reader.client.delete(key)
                if sink.name == "fields":
                    assert reader.names() == []
            kept = batch.filter(pa.array([row not in found for row in range(len(drawn))]))
            assert send(sink, slot_of(sink, kept)), f"seed {SEED}, number {number}"
            sums: dict[str, Decimal] = {}
            for key, by in zip(kept["k"].to_pylist(), kept["by"].to_pylist(), strict=True):
                if by is not None:
                    sums[key] = EXACT.add(sums.get(key, Decimal(0)), exact(kind, by))
            for key, total in sums.items():
                stored = reader.client.get(f"c:{key}") if sink.name == "keys" else reader.client.hget("h", key)
                assert stored.decode() == plain(total), f"seed {SEED}, number {number}, {kind}, {sink.name}"
    assert rejections > 5, "the draws must come to the limits"
