"""Settings of a checkpoint: what a query is told, what is refused, what is removed at the end."""

from __future__ import annotations

from mutants.mutant import Mutant

_SETTINGS = ("tests/unit/test_checkpoint_config.py",)
_REMOVAL = ("tests/unit/test_removal.py",)

RULES = (
    Mutant(
        name="faster-manager-without-state",
        rule="Spark's faster file manager, which keeps an epoch's first state, is for queries that keep none.",
        file="spark/defaults.py",
        old="if now.local_files and not now.state and not now.holds_state:",
        new="if now.local_files:",
        tests=_SETTINGS,
    ),
    Mutant(
        name="our-manager-where-all-who-write-find-it",
        rule="Our file manager is for queries whose executors run in the driver's JVM.",
        file="spark/defaults.py",
        old="now.local_files and now.local_master and",
        new="now.local_files and",
        tests=_SETTINGS,
    ),
    Mutant(
        name="pinned-settings-are-not-contradicted",
        rule="A start that asks for another setting than the checkpoint has is refused.",
        file="spark/defaults.py",
        old="wanted.lower() != pinned.lower()",
        new="False",
        tests=_SETTINGS,
    ),
    Mutant(
        name="staged-again-only-without-state",
        rule="A query that keeps state is not staged again in one run: a late task could write over its state.",
        file="spark/defaults.py",
        old="if config.tolerable_failures and (now.state or now.holds_state):",
        new="if False:",
        tests=_SETTINGS,
    ),
    Mutant(
        name="what-a-restart-does-not-mend-is-not-tolerated",
        rule="A driver that is fenced, or misconfigured, does not try again.",
        file="spark/tolerance.py",
        old="return error.exit_code == EpochTimedOut.exit_code",
        new="return True",
        tests=_SETTINGS,
    ),
    Mutant(
        name="removed-when-settled",
        rule="A checkpoint with a decided epoch that is not settled is not removed.",
        file="spark/removal.py",
        old="if settled < decided:",
        new="if False:",
        tests=_REMOVAL,
    ),
    Mutant(
        name="removed-when-nothing-is-staged",
        rule="A checkpoint that has something staged in a target is not removed.",
        file="spark/removal.py",
        old='is staged and not aborted" if pending else None',
        new='is staged and not aborted" if False else None',
        tests=_REMOVAL,
    ),
    Mutant(
        name="renamed-before-it-is-removed",
        rule="A checkpoint is renamed before it is removed, so that no crash leaves half of one.",
        file="spark/removal.py",
        old="        os.rename(root, rubbish)\n",
        new="        rubbish = root\n",
        tests=_REMOVAL,
    ),
)
