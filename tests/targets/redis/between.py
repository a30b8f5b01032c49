"""Crash points inside the Redis sink: every command that can change the server, before it is sent and after its answer.

The protocol's own operations are wrapped by `onceward.testing.wrappers`; this stands below them, between the driver's
client and the server.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import redis

from onceward.testing import Faults

_CHANGING = ("EVALSHA", "EVAL", "HDEL", "HSET", "HSETNX", "SET", "SCRIPT LOAD")
_living: list[Faults] = []


@contextmanager
def inside(faults: Faults) -> Iterator[Faults]:
    """Let every command of this driver's life pass through `faults`."""
    _living.append(faults)
    try:
        yield faults
    finally:
        _living.pop()


def stand_between(patch: pytest.MonkeyPatch) -> None:
    """From here on commands that change the server can be crash points."""
    execute, execute_all = redis.Redis.execute_command, redis.client.Pipeline.execute

    def watched(self: Any, *args: Any, **options: Any) -> Any:
        if _living and not isinstance(self, redis.client.Pipeline) and args[0] in _CHANGING:
            return _living[-1].perform(f"redis {args[0]}", partial(execute, self, *args, **options))
        return execute(self, *args, **options)

    def watched_all(self: Any, raise_on_error: bool = True) -> Any:
        if _living:
            return _living[-1].perform(f"redis pipeline of {len(self)}", partial(execute_all, self, raise_on_error))
        return execute_all(self, raise_on_error)

    patch.setattr(redis.Redis, "execute_command", watched)
    patch.setattr(redis.client.Pipeline, "execute", watched_all)
