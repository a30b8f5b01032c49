"""Keys in Redis: strings, hashes, sorted sets and counters, written by a script inside the server.

`options` are what the user asked for, and what a row writes; `compatibility` says whether the stream has it. `rows`
packs Arrow columns for the server (by `encode`, `scores` and `packing`), `parts` cuts epochs, `cluster` groups rows by
hash slot. `apply` calls for each part what `scripts` holds (with the sums of `arithmetic` and the `commands` that it
needs), and `receipts` tells what is in already. `preflight` looks at the server before the start, `facts` are compared
again in every epoch, `diagnose` is for `onceward doctor`. `rejected` finds the rows that the server does not take,
`errors` says what a failure means.
"""

from onceward.sinks.redis.sink import RedisSink

__all__ = ["RedisSink"]
