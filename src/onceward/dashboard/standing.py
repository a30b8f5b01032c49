"""How a job stands, in one word, with the reason and the command that mends it: a pure function of what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from onceward.restart.history import How, Life, Then

Kind = Literal[
    "running", "catching-up", "held-back", "stopping", "restarting", "silent", "seen", "stopped", "failed", "refused"
]
MOVING_S: Final = 30.0
"""A job without an API counts as moving for so long after its newest file."""

_FIXES: Final[Mapping[str, str]] = {
    "RowsRejected": "onceward poison show {file}",
    "EpochLost": "onceward recover {checkpoint} --dry-run",
    "OutputLost": "onceward recover {checkpoint} --dry-run",
    "TargetRolledBack": "onceward replay {file}",
    "TargetUnavailable": "onceward doctor {file}",
    "TargetRefused": "onceward doctor {file}",
    "TargetChanged": "onceward doctor {file}",
    "PublishFailed": "onceward doctor {file}",
    "ConfigurationError": "onceward doctor {file}",
    "DamagedFile": "onceward checkpoints verify {checkpoint}",
    "CheckpointRolledBack": "onceward recover {checkpoint} --dry-run",
    "CheckpointCopied": "onceward recover {checkpoint} --dry-run",
    "CheckpointReplaced": "onceward recover {checkpoint} --dry-run",
    "CheckpointUnknown": "onceward adopt {checkpoint}",
}
"""By the error that ended a life. What is not here is started again as it is."""


@dataclass(frozen=True, slots=True)
class Standing:
    """`why` is a sentence, empty where there is nothing to explain; `command` what to type next, if anything."""

    kind: Kind
    why: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was looked at, now. `no_driver` says why none answers; `process` is one that may be the driver all the same;
    `watched` whether the process that began the newest life is there; `moved_s` how long ago a file was new."""

    checkpoint: str
    file: str
    status: Mapping[str, Any] | None = None
    publishing: Mapping[str, Any] | None = None
    no_driver: str = ""
    process: int | None = None
    left_behind: bool = False
    life: Life | None = None
    watched: bool = False
    moved_s: float | None = None
    waiting: int = 0


def standing(seen: Seen) -> Standing:
    """The first rule that fits."""
    if seen.status is not None:
        return _running(seen, seen.status, seen.publishing or {})
    if seen.process is not None:
        return Standing("silent", f"{seen.no_driver}; it may be busy, or hang", f"onceward status {seen.checkpoint}")
    life = seen.life
    if life is not None and life.ended is None and seen.watched:
        return Standing("restarting", "its driver starts, and does not answer yet")
    if life is not None and life.ended is not None:
        return _ended(seen, life)
    if seen.left_behind:
        return Standing("failed", f"{seen.no_driver}: it was killed, or its host went down{_rest(seen)}", _again(seen))
    if seen.moved_s is not None and seen.moved_s < MOVING_S:
        return Standing("seen", "a driver without an API moves it: start it with --api to see more")
    return Standing("stopped", f"no driver answers{_rest(seen)}", _again(seen) if seen.waiting else "")


def _running(seen: Seen, status: Mapping[str, Any], publishing: Mapping[str, Any]) -> Standing:
    if status.get("error"):
        return Standing("failed", str(status["error"]), _again(seen))
    if status.get("stopping"):
        return Standing("stopping", "it was asked to stop, and ends after the running epoch")
    outage = status.get("outage")
    if outage:
        why = f"sink {outage['sink']!r} does not take epoch {outage['epoch']}: {outage['why']}"
        return Standing("held-back", why, f"onceward doctor {seen.file or 'FILE'}")
    unpublished, limit = publishing.get("unpublished", 0), publishing.get("limit", 0)
    if publishing.get("held_back"):
        return Standing("held-back", f"{unpublished} decided epochs wait for their targets, of at most {limit}")
    if not status.get("active", True):
        return Standing("stopping", "its query has ended; what is decided is being published")
    if unpublished > 1:
        return Standing("catching-up", f"{unpublished} decided epochs are being published, of at most {limit}")
    return Standing("running")


def _ended(seen: Seen, life: Life) -> Standing:
    ended = life.ended
    assert ended is not None, "asked for"
    told = ": ".join(text for text in (ended.error, ended.message) if text) or _HOW[ended.how]
    if ended.how is How.STOPPED:
        return Standing("stopped", f"it was stopped, or came to the end of its input{_rest(seen)}")
    if ended.how is How.REFUSED:
        return Standing("refused", told, _fix(seen, ended.error) or _again(seen))
    if ended.then is Then.RESTART and seen.watched:
        return Standing("restarting", f"life {life.number} ended: {told}")
    why = f"its restart strategy gave up: {told}" if ended.then is Then.GAVE_UP else told
    return Standing("failed", f"{why}{_rest(seen)}", _fix(seen, ended.error) or _again(seen))


_HOW: Final[Mapping[How, str]] = {
    How.STOPPED: "it was stopped",
    How.FAILED: "it failed",
    How.REFUSED: "its start was refused",
    How.KILLED: "its driver was killed",
    How.HUNG: "its JVM did not answer, and it was killed",
    How.VANISHED: "nobody has seen its end: killed, or its host went down",
}


def _fix(seen: Seen, error: str | None) -> str:
    return _FIXES.get(error or "", "").format(file=seen.file or "FILE", checkpoint=seen.checkpoint)


def _again(seen: Seen) -> str:
    return f"onceward run {seen.file or 'FILE'}"


def _rest(seen: Seen) -> str:
    if not seen.waiting:
        return ""
    waits = "decided epoch waits" if seen.waiting == 1 else "decided epochs wait"
    return f"; {seen.waiting} {waits}, and the next start publishes {'it' if seen.waiting == 1 else 'them'} first"
