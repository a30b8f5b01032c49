"""Taking an undecided epoch over from a driver that may be dead, or only asleep.

The order is all ("Two drivers on one checkpoint" in docs/architecture.md): reserve, *read the decision again*,
fix the fate, read it once more, and only then abort, and remove what is void. Each step by itself may be the last one
before a crash: a reservation without fate is refused by a publisher or stepped over by the next taker; a fate `taken`
without an abort leaves orphans with a lower takeover number, which this epoch's next taker or the reaper removes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from onceward.epoch.reap import abort_transactions
from onceward.epoch.run_context import RunContext
from onceward.identity import TransactionName
from onceward.journal import Fate

LOOKS: Final = 3
BETWEEN_LOOKS_S: Final = 0.5
"""A manifest that ought to be there is looked for this often: whoever is about to write it gets that much time."""


def take_over(context: RunContext, epoch: int) -> int | None:
    """Become the only driver whose manifest of `epoch` counts; None when it turned out to be decided meanwhile.

    Hooks are told by whoever asks for it: what was aborted may have been told already.
    """
    takeover = context.register.files(epoch).highest + 1
    while not context.register.reserve(epoch, takeover, context.run):
        takeover += 1
    if context.decisions.decided() >= epoch:
        return None
    if context.register.decide_fate(epoch, takeover, Fate.TAKEN) is not Fate.TAKEN:
        return None
    if context.decisions.decided() >= epoch:
        _adopt(context, epoch, takeover)
        return None

    def is_void(name: TransactionName) -> bool:
        return name.epoch == epoch and name.takeover < takeover

    abort_transactions(context, is_void)
    context.register.forget_void(epoch, takeover)
    return takeover


def _adopt(context: RunContext, epoch: int, takeover: int) -> None:
    """The epoch was decided between the second look and the fate: let what was decided count under our number.

    Lower reservations that are still open are refused first, so that no other taker has to be waited for. Nobody else
    writes this number's manifest, so the copy cannot meet another one. A manifest that is missing is looked for again:
    the taker below us may be about to adopt it as well. Without one, whoever publishes stops with `EpochLost`.
    """
    files = context.register.files(epoch)
    lower = [t for t in files.reserved | files.fates if t < takeover]
    taken = [t for t in lower if context.register.decide_fate(epoch, t, Fate.REFUSED) is Fate.TAKEN]
    for _ in range(LOOKS):
        manifest = context.register.manifest(epoch, max(taken, default=0))
        if manifest is not None:
            context.register.create_manifest(replace(manifest, takeover=takeover))
            return
        if context.watermark() >= epoch:
            return
        context.clock.pause(BETWEEN_LOOKS_S)


def highest_taken(context: RunContext, epoch: int) -> int:
    """The takeover number whose manifest counts, as far as anyone has fixed it yet."""
    return context.register.taken(epoch, context.register.files(epoch))


def settle_fates(context: RunContext, epoch: int) -> int:
    """For a decided epoch: refuse every reservation that is still open; the takeover number whose manifest counts.

    After this no taker can abort anything of the manifest that counts.
    """
    files = context.register.files(epoch)
    open_ones = files.reserved - files.fates
    taken = [t for t in open_ones if context.register.decide_fate(epoch, t, Fate.REFUSED) is Fate.TAKEN]
    return max([*taken, context.register.taken(epoch, files)])
