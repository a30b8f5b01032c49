"""A table in SQLite. `schema` holds the statements and compares table and stream, `values` turns Arrow into Python."""

from onceward.sinks.sqlite.sink import SQLiteSink

__all__ = ["SQLiteSink"]
