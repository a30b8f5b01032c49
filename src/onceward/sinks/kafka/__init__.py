"""Kafka topics. Where it stands: *stage* is onceward's own log; *publish* is one Kafka transaction with its receipt."""

from onceward.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
