"""Counts the views itself, and compares: what each target says of every app, and whether that is right.

Exit code 0 if all is right, 1 if not: while views come in, the targets are an epoch or two behind.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

import confluent_kafka as kafka

BROKERS = os.environ.get("KAFKA", "localhost:9092")


def records(topic: str) -> Iterator[kafka.Message]:
    """All records of a topic that a `read_committed` reader gets, up to its end."""
    consumer = kafka.Consumer({"bootstrap.servers": BROKERS, "group.id": "audit", "enable.partition.eof": True})
    places = [
        kafka.TopicPartition(topic, n, 0) for n in consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ]
    consumer.assign(places)
    ends = 0
    while ends < len(places):
        message = consumer.poll(30)
        if message is None:
            raise TimeoutError(f"the broker has not answered for 30 s about {topic}")
        if message.error() is None:
            yield message
        elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
            ends += 1
        else:
            raise kafka.KafkaException(message.error())
    consumer.close()


def in_kafka() -> tuple[dict[str, int], int]:
    """The last count of each app, and how many records did not raise it: a repeated or a lost epoch would show."""
    counts: dict[str, int] = {}
    wrong = 0
    for message in records("pv"):
        row = json.loads(message.value())
        wrong += row["count"] <= counts.get(row["app"], 0)
        counts[row["app"]] = row["count"]
    return counts, wrong


def in_redis(url: str) -> dict[str, int]:
    """As `redis-cli GET pv:app1` gives it."""
    import redis

    with redis.Redis.from_url(url, decode_responses=True) as client:
        return {key.removeprefix("pv:"): int(client.get(key)) for key in client.scan_iter("pv:*")}


def in_postgres(url: str) -> dict[str, int]:
    """As `SELECT app, count FROM pv` gives it."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT app, count FROM pv")
        return dict(cursor.fetchall())


def main() -> int:
    """One line for each app."""
    views = Counter(message.value().decode() for message in records("views"))
    counts, wrong = in_kafka()
    targets: dict[str, Mapping[str, int]] = {"views": views, "Kafka": counts}
    if redis := os.environ.get("REDIS_URL"):
        targets["Redis"] = in_redis(redis)
    if postgres := os.environ.get("POSTGRES_URL"):
        targets["PostgreSQL"] = in_postgres(postgres)
    print("app".ljust(8), *(name.rjust(12) for name in targets))
    for app in sorted(set().union(*targets.values())):
        print(app.ljust(8), *(f"{found.get(app, 0):12,}" for found in targets.values()))
    print("in all".ljust(8), *(f"{sum(found.values()):12,}" for found in targets.values()))
    if wrong:
        print(f"{wrong} records in Kafka do not raise the count before them")
    agree = all(dict(found) == dict(views) for found in targets.values())
    print("all agree" if agree else "they do not agree (yet)")
    return 0 if agree and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
