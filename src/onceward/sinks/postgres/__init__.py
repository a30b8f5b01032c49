"""A table in PostgreSQL, by way of Arrow and binary COPY.

`sink` takes the options and chooses between `two_phase` and `write_ahead` (with `upsert`); both stand on `rows` (COPY),
`receipts` and `preflight`; `compatibility` and `encode` fit the stream to the `table`, and `hazards`, `obstacles` and
`facts` tell what else in the table matters.
"""

from onceward.sinks.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]
