"""The visible names are the receipts: a listing of the folder tells what was published."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from onceward.contracts import Receipt
from onceward.identity import Fingerprint, JobIdentity, SinkName, TransactionName
from onceward.sinks.files.layout import FinalName


def all_receipts(root: Path, job: JobIdentity, sink: SinkName) -> set[Receipt]:
    """One for each slot of this job's name and this sink that is visible, in any generation.

    One visible file of several is enough: it proves the decision, and committing the slot again shows the others.
    """
    names = _published(root, f"part-ow1_{job.digest}_")
    finals = {parsed for name in names if (parsed := FinalName.parse(name)) is not None}
    owners = ((final, TransactionName.parse(final.transaction)) for final in finals)
    return {
        Receipt(
            job=job.name,
            generation=owner.generation,
            sink=sink,
            epoch=owner.epoch,
            slot=owner.slot,
            fingerprint=Fingerprint(final.fingerprint),
        )
        for final, owner in owners
        if owner is not None and owner.is_of(job, sink)
    }


def _published(root: Path, prefix: str) -> Iterator[str]:
    """The names of visible files that begin with `prefix`, in `root` and its partition folders."""
    waiting = [os.fspath(root)]
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except FileNotFoundError:
            continue
        with entries:
            for entry in entries:
                name = entry.name
                if name.startswith(prefix):
                    yield name
                elif "=" in name and name[0] != "." and entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
