"""What the sinks find in their targets, said in the log once the sinks are checked and before any row moves."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from onceward.contracts import AnySink, Severity, Workload
from onceward.logs import about

log = logging.getLogger("onceward")


def log_findings(sinks: Sequence[AnySink], workload: Workload) -> None:
    """Warn of all that is not as it should be; `onceward doctor` shows the rest, too. A diagnosis that fails stops
    nothing: what must stop a job was for `check`, which has passed."""
    for sink in sinks:
        with about(sink=sink.name):
            try:
                findings = list(sink.diagnose(workload))
            except Exception:
                log.warning("sink %r: the diagnosis of its target failed; the job goes on", sink.name, exc_info=True)
                continue
            for finding in findings:
                if finding.severity is not Severity.OK:
                    log.warning("sink %r: %s: %s (%s)", sink.name, finding.about, finding.detail, finding.fix)
