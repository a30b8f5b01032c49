"""Keys in Redis. `layout` says what a row writes, `rows` packs Arrow columns for the server, `scripts` holds what runs
there, `parts` cuts epochs, `server` and `cluster` know how to reach one server or several."""

from onceward.sinks.redis.sink import RedisSink

__all__ = ["RedisSink"]
