"""Page views for the example, as many a second as asked, until Ctrl-C or until so many were sent."""

from __future__ import annotations

import argparse
import random
import threading

import confluent_kafka as kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

APPS = [f"app{number}" for number in range(1, 11)]


def main() -> None:
    """Popular apps have more views than others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", default="localhost:9092")
    parser.add_argument("--rate", type=int, default=1000, help="views a second")
    parser.add_argument("--views", type=int, help="how many in all; without it, until Ctrl-C")
    options = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": options.brokers})
    if "views" not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic("views", num_partitions=2)])["views"].result(30)
    producer = kafka.Producer({"bootstrap.servers": options.brokers, "enable.idempotence": True})
    sent, stop = 0, threading.Event()
    try:
        while options.views is None or sent < options.views:
            share = options.rate if options.views is None else min(options.rate, options.views - sent)
            for app in random.choices(APPS, weights=range(len(APPS), 0, -1), k=share):
                producer.produce("views", app, app)
            producer.flush(30)
            sent += share
            print(f"{sent:,} views sent")
            if options.views is None or sent < options.views:
                stop.wait(1)
    except KeyboardInterrupt:
        producer.flush(30)


if __name__ == "__main__":
    main()
