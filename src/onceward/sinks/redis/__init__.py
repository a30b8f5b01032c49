"""Keys in Redis. `layout` says what a row writes, `rows` packs Arrow columns for the server, `scripts` holds what runs
there, `parts` cuts epochs, `cluster` groups rows by hash slot, `readiness` looks at the server before the start."""

from onceward.sinks.redis.sink import RedisSink

__all__ = ["RedisSink"]
