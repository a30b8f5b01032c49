"""*Stage*: what a task attempt leaves behind, and under which name."""

from __future__ import annotations

from mutants.mutant import Mutant

RULES = (
    Mutant(
        name="failed-attempt-is-discarded",
        rule="An attempt that fails lets go of what it has staged so far, in every sink.",
        file="epoch/stage.py",
        old="                writer.discard()\n",
        new="                pass\n",
        tests=("tests/protocol/test_stage.py",),
    ),
    Mutant(
        name="first-failure-is-reported",
        rule="What fails while a failed attempt is discarded does not hide why the attempt failed.",
        file="epoch/stage.py",
        old="            with contextlib.suppress(Exception):\n                writer.discard()",
        new="            with contextlib.suppress(KeyError):\n                writer.discard()",
        tests=("tests/protocol/test_stage.py",),
    ),
    Mutant(
        name="empty-batches-stage-nothing",
        rule="A slot without rows begins no transaction and writes no segment.",
        file="epoch/stage.py",
        old="if batch.num_rows == 0:",
        new="if False:",
        tests=("tests/protocol/test_stage.py",),
    ),
    Mutant(
        name="immediate-output-proves-nothing",
        rule="What goes to the target before the decision does not bear the epoch's fingerprint.",
        file="epoch/stage.py",
        old="fingerprint=IMMEDIATE if self.immediate else self.fingerprint",
        new="fingerprint=self.fingerprint",
        tests=("tests/protocol/test_stage.py",),
    ),
    Mutant(
        name="segment-is-closed-durably-before-it-is-named",
        rule="A segment's handle is given out only after its file was closed, which makes it durable.",
        file="wal/segment.py",
        old="        self._buffered.flush()\n        self._file.close()\n        return {",
        new="        self._buffered.flush()\n        return {",
        tests=("tests/protocol/test_stage.py",),
    ),
    Mutant(
        name="segment-is-verified",
        rule="A segment is read only after its length and checksum were found to be those of the manifest.",
        file="wal/segment.py",
        old="    whole = _verified(storage, path, handle)\n",
        new="    whole = None\n",
        tests=("tests/protocol/test_scenarios_crash_and_order.py",),
    ),
    Mutant(
        name="segment-path-is-one-of-ours",
        rule="A manifest cannot lead the reader of segments to another file.",
        file="wal/segment.py",
        old="if not epoch.isdigit() or TransactionName.parse(",
        new="if not path or not name or TransactionName.parse(",
        tests=("tests/protocol/test_stage.py",),
    ),
    Mutant(
        name="segments-of-other-jobs-are-left-alone",
        rule="What the log holds is this job's and generation's only where its name says so.",
        file="wal/store.py",
        old="if name is not None and name.belongs_to(job, WAL):",
        new="if name is not None:",
        tests=("tests/protocol/test_stage.py",),
    ),
    Mutant(
        name="staged-again-under-another-number",
        rule="An epoch that is staged again in one run is taken over from its first staging, which is void from then.",
        file="epoch/coordinator.py",
        old="takeover = None if decided else take_over(self._context, epoch)",
        new="takeover = None if decided else self._takeovers.get(epoch, 0)",
        tests=("tests/protocol/test_staged_again.py",),
    ),
    Mutant(
        name="what-another-driver-decided-is-not-staged-again",
        rule="A driver whose epoch failed and was decided by another one meanwhile stops, and reserves nothing.",
        file="epoch/coordinator.py",
        old="takeover = None if decided else take_over(self._context, epoch)",
        new="takeover = take_over(self._context, epoch)",
        tests=("tests/protocol/test_staged_again.py",),
    ),
    Mutant(
        name="published-epochs-are-not-taken-over",
        rule="An epoch that recovery found published is only read again, also when reading it has failed.",
        file="epoch/coordinator.py",
        old="        if epoch in self._published:\n            return self.begin(epoch)\n",
        new="",
        tests=("tests/protocol/test_staged_again.py",),
    ),
    Mutant(
        name="failures-are-counted-in-a-row",
        rule="An epoch is staged again no more often than is tolerated.",
        file="epoch/attempts.py",
        old="if not tolerates(error, failures):",
        new="if not tolerates(error, max(failures - 1, 0)):",
        tests=("tests/protocol/test_staged_again.py",),
    ),
)
