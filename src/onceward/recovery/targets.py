"""Before a start: do the targets still have what was published, and do their receipts stand where they stood?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onceward.contracts import what_changed
from onceward.epoch import RunContext
from onceward.epoch.exits import refuse_moved
from onceward.epoch.run_context import log
from onceward.errors import DamagedFile, NewerFormat
from onceward.identity import SinkName
from onceward.journal import Marker, SinkEntry


def receipts_places(context: RunContext) -> Mapping[SinkName, str]:
    """Where each sink's receipts stand now, as its target says."""
    return {sink.name: sink.receipts_at() for sink in context.sinks}


def target_facts(context: RunContext) -> Mapping[SinkName, Mapping[str, str]]:
    """What each sink relies on in its target, as it is now."""
    return {sink.name: sink.target_facts() for sink in context.sinks}


def refuse_moved_receipts(context: RunContext) -> None:
    """See `refuse_moved`. An epoch that is not decided is computed again anyway."""
    for epoch, name, entry in _waiting(context):
        refuse_moved(entry, context.receipts_at.get(name, ""), epoch=epoch, sink=name)


def warn_of_changed_targets(context: RunContext) -> None:
    """The check of this start has accepted the target as it is now, also for what was staged for it as it was."""
    for epoch, name, entry in _waiting(context):
        if name in context.target_facts and entry.slots and entry.target:
            told = what_changed(entry.target, context.target_facts[name])
            if told:
                text = "sink %r: since epoch %d was staged the target has changed: %s"
                log.warning(text, name, epoch, told, extra={"sink": name, "epoch": epoch})


def warn_of_new_sinks(context: RunContext, markers: Sequence[Marker]) -> None:
    """One that joins, or was renamed, begins in mid-stream."""
    delivered = [marker.manifest for marker in markers if marker.manifest is not None]
    if not delivered:
        return
    for sink in context.sinks:
        if sink.name not in delivered[-1].sinks:
            log.warning(
                "sink %r is new on this checkpoint: it gets rows from epoch %d on, and none of those that were "
                "delivered to the others before",
                sink.name,
                max(context.watermark(), context.decisions.decided()) + 1,
                extra={"sink": sink.name},
            )


def _waiting(context: RunContext) -> Iterator[tuple[int, SinkName, SinkEntry]]:
    """Each sink's part of every decided epoch that is not settled, without what a person has resolved."""
    waiting = range(context.watermark() + 1, context.decisions.decided() + 1)
    for epoch, files in sorted(context.register.epochs().items()):
        if epoch not in waiting:
            continue
        try:
            manifest = context.register.valid_manifest(epoch, files)
        except NewerFormat:
            raise
        except DamagedFile:
            continue  # Whether that matters is for the plan to say.
        if manifest is not None:
            yield from ((epoch, name, entry) for name, entry in context.resolved.without(manifest).sinks.items())
