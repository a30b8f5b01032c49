"""Files that a plain directory reader can trust: Parquet, JSON lines, CSV. Two-phase commit by rename.

`options` are what the user asked for, `compatibility` says whether the stream's columns fit, `preflight` tries out the
folder before the start. `writer` stages a slot's files in one of the `formats`, `engine` takes those that Spark itself
has written, `layout` says what they are called before and after, `publish` gives them their final names, which are the
`receipts`.
"""

from onceward.sinks.files.sink import FileSink

__all__ = ["FileSink"]
