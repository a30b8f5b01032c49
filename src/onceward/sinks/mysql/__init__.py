"""A table in MySQL or MariaDB: two-phase commit by XA for appended rows, the write-ahead log for upserts.

`sink` chooses between `two_phase` and `write_ahead`. Both stand on `encode` (Arrow columns as `LOAD DATA`
reads them), `loader`, `table` and `compatibility` (the target, and whether it takes the stream), and `receipts`.
"""

from onceward.sinks.mysql.sink import MySQLSink

__all__ = ["MySQLSink"]
