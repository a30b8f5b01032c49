"""Between *stage* and *decide*: is all that the slots say they staged there, seen from where it will be published?

An executor may have another disk at the same path, and every write of it succeeds. What is not found now would be found
missing when it is decided, and its rows would be gone.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence

from onceward.contracts import AnySink, EngineWritten, Handle, TwoPhaseCommitSink
from onceward.epoch.run_context import RunContext
from onceward.epoch.stage import EpochAssignment, SlotAck
from onceward.errors import OncewardError, StagedRowsMissing, TargetUnavailable
from onceward.wal import is_segment

_SHOWN = 3


def refuse_missing(context: RunContext, assignment: EpochAssignment, acks: Sequence[SlotAck]) -> None:
    """Raise unless everything is there. The rows themselves are not read again."""
    missing = [*_not_in_log(context, acks)]
    for sink in assignment.sinks:
        missing += _not_staged(sink, acks)
        if isinstance(sink, TwoPhaseCommitSink):
            missing += _not_in_target(sink, acks, assignment.epoch)
    if missing:
        more = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise StagedRowsMissing(
            f"the driver on {platform.node()} does not find all that was staged: {'; '.join(missing[:_SHOWN])}{more}",
            epoch=assignment.epoch,
            hint="do driver and executors see one and the same folder there? Give a path on a file system that all of "
            "them have mounted. The epoch was aborted: nothing is decided and nothing is visible",
        )


def _not_in_log(context: RunContext, acks: Sequence[SlotAck]) -> Iterator[str]:
    for ack in acks:
        for staged in ack.staged:
            if is_segment(staged.handle):
                missing = context.segments.missing(staged.handle) or _too_few(staged.handle, ack)
                if missing is not None:
                    yield _told(ack, missing)


def _not_staged(sink: AnySink, acks: Sequence[SlotAck]) -> Iterator[str]:
    for ack in acks:
        if ack.rows and not any(sink.name in staged.sinks for staged in ack.staged):
            yield _told(ack, f"nothing of its {ack.rows} rows is staged for sink {sink.name!r}")


def _not_in_target(sink: TwoPhaseCommitSink[object], acks: Sequence[SlotAck], epoch: int) -> Iterator[str]:
    slots = [(ack, staged.handle) for ack in acks for staged in ack.staged if sink.name in staged.sinks]
    if not slots:
        return
    try:
        answers = sink.verify([handle for _, handle in slots])
    except OncewardError:
        raise
    except Exception as error:
        raise TargetUnavailable(
            f"the target cannot be asked whether it holds what was staged: {error}",
            epoch=epoch,
            sink=sink.name,
            hint="nothing is decided; start again when it can be reached",
        ) from error
    for (ack, handle), answer in zip(slots, answers, strict=True):
        missing = answer or (_too_few(handle, ack) if isinstance(sink, EngineWritten) else None)
        if missing is not None:
            yield _told(ack, missing)


def _too_few(handle: Handle, ack: SlotAck) -> str | None:
    return None if handle["rows"] == ack.rows else f"{handle['rows']} rows are there, and {ack.rows} were staged"


def _told(ack: SlotAck, missing: str) -> str:
    where = f", staged on {ack.host}" if ack.host else ""
    return f"slot {ack.slot}{where}: {missing}"
