"""A table in SQLite, from the write-ahead log.

`sink` stands on `rows` (the statements that write), `table` and `compatibility` (the target, and whether it takes the
stream), `encode` (Arrow columns as parameters), and `receipts`.
"""

from onceward.sinks.sqlite.sink import SQLiteSink

__all__ = ["SQLiteSink"]
