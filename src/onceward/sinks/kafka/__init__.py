"""Kafka topics. Where it stands: *stage* is onceward's own log; *publish* is one Kafka transaction with its receipt.

`options` are what the user asked for, with the `settings` of the client among them. `columns` and `compatibility` say
what the stream's columns are for, and whether they and the topic fit; `encode` makes records of them, and `limits` says
which of these a topic does not take. A `session` publishes: by a `producer` (`column_producer`, by way of `library`, or
`record_producer`), with its `receipts`, into the `topics` as they are known. `client` and `cluster` are the connections
to the brokers. `preflight` asks them before the start, `facts` are compared again in every epoch, `diagnose` is for
`onceward doctor`. `rejected` finds the rows that the brokers do not take, `errors` says what a failure means.
"""

from onceward.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
