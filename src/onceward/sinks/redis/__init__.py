"""Keys in Redis. `options` says what a row writes, `rows` packs Arrow columns for the server, `scripts` holds what runs
there, `parts` cuts epochs, `cluster` groups rows by hash slot, `preflight` looks at the server before the start."""

from onceward.sinks.redis.sink import RedisSink

__all__ = ["RedisSink"]
