"""The targets. In *source → stage → decide → publish → settle → recover* a sink stages, publishes and keeps receipts.

One package a target. Each imports the contracts and its own driver, and none knows another.
"""

from onceward.sinks.files import FileSink
from onceward.sinks.kafka import KafkaSink
from onceward.sinks.mysql import MySQLSink
from onceward.sinks.postgres import PostgresSink
from onceward.sinks.redis import RedisSink
from onceward.sinks.sqlite import SQLiteSink
from onceward.sinks.stdout import StdoutSink

__all__ = ["FileSink", "KafkaSink", "MySQLSink", "PostgresSink", "RedisSink", "SQLiteSink", "StdoutSink"]
