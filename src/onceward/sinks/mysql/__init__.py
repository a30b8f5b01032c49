"""A table in MySQL or MariaDB: two-phase commit by XA for appended rows, the write-ahead log for upserts.

`sink` chooses between `two_phase` (with `xa`) and `write_ahead` (with `merge`). Both stand on `encode` (Arrow columns
as `LOAD DATA` reads them), `loader`, `table` and `compatibility` (the target, and whether it takes the stream), and
`receipts`. `look` reads the target as it stands, and holds it like that, for `preflight` and `facts`.
"""

from onceward.sinks.mysql.sink import MySQLSink

__all__ = ["MySQLSink"]
