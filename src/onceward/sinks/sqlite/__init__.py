"""A table in SQLite. `compatibility` holds the statements and compares table and stream, `encode` makes parameters."""

from onceward.sinks.sqlite.sink import SQLiteSink

__all__ = ["SQLiteSink"]
