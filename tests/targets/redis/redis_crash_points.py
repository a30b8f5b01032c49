"""Crash points inside the Redis sink: every command that can change the server, before it is sent and after its answer.

The protocol's own operations are wrapped by `onceward.testing.wrappers`; this stands below them, between the driver's
client and the server.
"""

from functools import partial
from typing import Any

import pytest
import redis

from onceward.testing.faults import FaultScope

_CHANGING = ("EVALSHA", "EVAL", "HDEL", "HSET", "HSETNX", "SET", "SCRIPT LOAD")
_fault_scope = FaultScope()
crash_points = _fault_scope.life


def install_crash_points(patch: pytest.MonkeyPatch) -> None:
    """From here on commands that change the server can be crash points."""
    execute, execute_all = redis.Redis.execute_command, redis.client.Pipeline.execute

    def watched(self: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(self, redis.client.Pipeline) and args[0] in _CHANGING:
            return _fault_scope.perform(f"redis {args[0]}", partial(execute, self, *args, **options))
        return execute(self, *args, **options)

    def watched_all(self: Any, raise_on_error: bool = True) -> Any:
        return _fault_scope.perform(f"redis pipeline of {len(self)}", partial(execute_all, self, raise_on_error))

    patch.setattr(redis.Redis, "execute_command", watched)
    patch.setattr(redis.client.Pipeline, "execute", watched_all)
