"""*Settle*: the marker, what may go after it, and what the reaper may take."""

from __future__ import annotations

from mutants.mutant import Mutant

SETTLING = ("tests/protocol/test_settling.py",)
WENT_BACK = ("tests/protocol/test_target_went_back.py",)

RULES = (
    Mutant(
        name="marker-before-removal",
        rule="The settled marker is durable before anything that it makes superfluous is removed.",
        file="epoch/publish.py",
        old="        context.settled.mark(",
        new="        context.register.forget(epoch)\n        context.settled.mark(",
        tests=SETTLING,
    ),
    Mutant(
        name="highest-marker-counts",
        rule="The highest settled marker is the watermark.",
        file="journal/settled.py",
        old="return max(self.epochs(), default=-1)",
        new="return min(self.epochs(), default=-1)",
        tests=SETTLING,
    ),
    Mutant(
        name="newest-markers-are-kept",
        rule="Of the markers only the oldest are let go.",
        file="journal/settled.py",
        old="self.epochs()[:-KEPT]:",
        new="self.epochs()[KEPT:]:",
        tests=SETTLING,
    ),
    Mutant(
        name="manifests-are-forgotten-before-their-fates",
        rule="Of a settled epoch the manifests go first, so that a crash leaves none without its fates.",
        file="journal/register.py",
        old='(("json", files.manifests), ("reserved", files.reserved), ("fate", files.fates))',
        new='(("fate", files.fates), ("reserved", files.reserved), ("json", files.manifests))',
        tests=SETTLING,
    ),
    Mutant(
        name="reaper-leaves-undecided-work",
        rule="The reaper takes nothing of an epoch that may still be decided.",
        file="epoch/reap.py",
        old="elif epoch <= decided:",
        new="else:",
        tests=SETTLING,
    ),
    Mutant(
        name="reaper-leaves-what-the-manifest-names",
        rule="The reaper takes nothing that the valid manifest of its epoch names.",
        file="epoch/reap.py",
        old="not in names:",
        new="not in ():",
        tests=SETTLING,
    ),
    Mutant(
        name="reaper-needs-a-manifest-to-go-by",
        rule="The reaper takes nothing of a decided epoch whose manifest it does not find.",
        file="epoch/reap.py",
        old="if names is not None and str(",
        new="if str(",
        tests=SETTLING,
    ),
    Mutant(
        name="reaper-waits-for-open-reservations",
        rule="While a takeover's fate is open, nobody knows which manifest counts: the reaper takes nothing.",
        file="epoch/reap.py",
        old="if files.reserved - files.fates:",
        new="if False:",
        tests=SETTLING,
    ),
    Mutant(
        name="receipts-are-kept-for-a-while",
        rule="Targets are asked to forget receipts only far below the watermark.",
        file="epoch/housekeeping.py",
        old="self._forget_receipts(watermark - self._limits.keep_receipts)",
        new="self._forget_receipts(watermark + self._limits.keep_receipts)",
        tests=SETTLING,
    ),
    Mutant(
        name="sweep-that-fails-is-put-off",
        rule="A target that does not answer a sweep does not stop a job whose epochs are settled.",
        file="epoch/publish.py",
        old="        except Exception as error:\n            self._rollbacks.owes_look = True\n            log",
        new="        except KeyError as error:\n            self._rollbacks.owes_look = True\n            log",
        tests=("tests/protocol/test_scenarios_target.py",),
    ),
    Mutant(
        name="leftovers-of-settled-epochs-are-removed",
        rule="What a crash kept from being removed after an epoch was settled is removed by a sweep.",
        file="epoch/housekeeping.py",
        old="            if epoch <= watermark:\n",
        new="            if False:\n",
        tests=SETTLING,
    ),
    Mutant(
        name="reaper-leaves-what-a-marker-names",
        rule="What the marker of a settled epoch names is never aborted: a target that went back has no other copy.",
        file="epoch/reap.py",
        old="    return names is not None and str(found.name) not in names\n",
        new="    return names is not None\n",
        tests=WENT_BACK,
    ),
    Mutant(
        name="reaper-needs-a-marker-to-go-by",
        rule="Of a settled epoch whose marker is gone or damaged nothing in a target is aborted.",
        file="epoch/reap.py",
        old="    return names is not None and str(found.name) not in names\n",
        new="    return names is None or str(found.name) not in names\n",
        tests=(*SETTLING, *WENT_BACK),
    ),
    Mutant(
        name="segments-are-kept-before-the-epoch-is-settled",
        rule="That an epoch's segments are kept is on record before the marker that would let them go.",
        file="epoch/publish.py",
        old="            context.kept.keep(marker)\n",
        new="            context.settled.mark(marker)\n            context.kept.keep(marker)\n",
        tests=("tests/protocol/test_replay.py",),
    ),
)
