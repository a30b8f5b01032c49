"""The targets. In *source → stage → decide → publish → settle → recover* a sink stages, publishes and keeps receipts.

One file a target: `files` (Parquet, JSON lines, CSV; its parts are `files_*`), `sqlite` and `stdout`.
"""

from onceward.sinks.files import FileSink
from onceward.sinks.sqlite import SQLiteSink
from onceward.sinks.stdout import StdoutSink

__all__ = ["FileSink", "SQLiteSink", "StdoutSink"]
