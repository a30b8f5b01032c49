"""Sinks and committers whose calls on the driver are made under a watchdog.

A watched sink is of its sink's own class and shares its attributes, so that whoever asks what it is or has gets the
same answers, also to questions that a user's sink has invented. Only the calls below go through the watchdog. Pickled,
it is the sink itself: Spark watches over executors.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from onceward.contracts import AnySink, CheckpointCommitter, Sink, WriteAheadSink
from onceward.epoch.watchdog import Watchdog
from onceward.errors import OncewardError, PublishFailed, TargetUnavailable

PUBLISHING = ("commit", "commit_all", "send_transaction", "send_values")
ASKING = (
    "choose",
    "check",
    "diagnose",
    "shared_folders",
    "receipts",
    "receipts_at",
    "target_facts",
    "forget",
    "verify",
    "abort",
    "pending",
    "pending_of_job",
    "find_rejected",
)
STAGING = ("begin_transaction", "invoke", "pre_commit", "discard", "engine_target", "engine_pre_commit")
"""Not watched one by one: an attempt must stay in one thread from its beginning to its end."""
OF_A_COMMITTER = ("open", "is_checkpoint_committed", "commit_checkpoint", "forget")
_LISTS = {"diagnose", "shared_folders", "receipts", "verify", "pending", "pending_of_job", "find_rejected"}
"""Their answers may be computed while they are read: that has to happen inside the call."""

_ERRORS: Mapping[str, type[OncewardError]] = {
    **dict.fromkeys(PUBLISHING, PublishFailed),
    **dict.fromkeys(ASKING, TargetUnavailable),
}
_WATCH = "__watched_by_onceward__"
"""A name that no sink has for something of its own: both are attributes of one object."""
S = TypeVar("S", bound=Sink)


def with_watchdog(sink: S, watchdog: Watchdog) -> S:
    """The same sink, with its calls under the watchdog."""
    kind: Any = type(sink)
    return _made(sink, watchdog, str(sink.name), _sink_class(kind))  # type: ignore[no-any-return]


def without_watchdog(sink: S) -> S:
    """The sink itself."""
    watch = getattr(sink, _WATCH, None)
    return sink if watch is None else watch[0]


def _made(inner: Any, watchdog: Watchdog, name: str, kind: type) -> Any:
    made: Any = object.__new__(kind)
    made.__dict__ = inner.__dict__
    setattr(made, _WATCH, (inner, watchdog, name))
    return made


@cache
def _sink_class(kind: type) -> type:
    def alternate(self: Any) -> AnySink | None:
        inner, watchdog, _ = getattr(self, _WATCH)
        return None if inner.alternate is None else with_watchdog(inner.alternate, watchdog)

    def committer(self: Any) -> CheckpointCommitter | None:
        inner, watchdog, name = getattr(self, _WATCH)
        if inner.committer is None:
            return None
        kind: Any = type(inner.committer)
        return _made(inner.committer, watchdog, name, _committer_class(kind))  # type: ignore[no-any-return]

    # What a sink has not overridden does nothing, and that it has not is asked for elsewhere.
    calls = {
        call: error for call, error in _ERRORS.items() if getattr(kind, call, None) is not getattr(Sink, call, None)
    }
    own: dict[str, Any] = {call: _call(call, call, error) for call, error in calls.items()}
    own["alternate"] = property(alternate)
    if issubclass(kind, WriteAheadSink):
        own["committer"] = property(committer)
    return _subclass(kind, own)


@cache
def _committer_class(kind: type) -> type:
    return _subclass(kind, {call: _call(call, f"committer.{call}", PublishFailed) for call in OF_A_COMMITTER})


def _subclass(kind: type, own: dict[str, Any]) -> type:
    """With a slot of its own beside the attributes that it shares, where the sink itself cannot see it."""

    def missing(self: Any, name: str) -> Any:
        return getattr(getattr(self, _WATCH)[0], name)

    def itself(self: Any) -> tuple[Callable[[Any], Any], tuple[Any]]:
        return _itself, (getattr(self, _WATCH)[0],)

    own |= {"__slots__": (_WATCH,), "__getattr__": missing, "__reduce__": itself, "__module__": kind.__module__}
    return types.new_class(kind.__name__, (kind,), exec_body=lambda namespace: namespace.update(own))


def _itself(inner: Any) -> Any:
    return inner


def _call(call: str, shown: str, error: type[OncewardError]) -> Callable[..., Any]:
    def made(self: Any, *arguments: Any, **named: Any) -> Any:
        inner, watchdog, name = getattr(self, _WATCH)
        method = getattr(inner, call)

        def do() -> Any:
            answer = method(*arguments, **named)
            return list(answer) if call in _LISTS else answer

        return watchdog.call(name, shown, do, error=error)

    made.__name__ = call
    return made
