"""A table in SQLite. `rows` holds the statements, `table` and `compatibility` compare table and stream, `encode` makes
parameters."""

from onceward.sinks.sqlite.sink import SQLiteSink

__all__ = ["SQLiteSink"]
