"""A committer that remembers each slot as a small file."""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from onceward.contracts import CheckpointCommitter
from onceward.errors import ConfigurationError, OncewardError
from onceward.identity import JobIdentity, SinkName, sink_digest
from onceward.storage import make_folders, sync_folder

_NAME = re.compile(r"(?P<epoch>\d+)-(?P<slot>\d+)\.json")


class FileCheckpointCommitter(CheckpointCommitter):
    """One write-once file per slot and epoch, `<folder>/<job>_<generation>_<sink>/<epoch>-<slot>.json`.

    That the file exists is all that counts; what it holds is for people.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        text = os.fspath(folder)
        if not text or "://" in text or "\0" in text:
            raise ConfigurationError(f"{text!r} is not a local folder", hint="give a plain path")
        self.folder = Path(os.path.abspath(os.path.expanduser(text)))
        self._scope: tuple[JobIdentity, SinkName] | None = None

    def open(self, job: JobIdentity, sink: SinkName) -> None:
        """Make the folder of this job, generation and sink."""
        self._scope = (job, sink)
        place = self._place()
        make_folders(place)
        sync_folder(place.parent)

    def is_checkpoint_committed(self, slot: int, checkpoint_id: int) -> bool:
        """Whether the slot's file exists."""
        return self._file(slot, checkpoint_id).exists()

    def commit_checkpoint(self, slot: int, checkpoint_id: int) -> None:
        """Create the slot's file, durably; that it is there already is fine."""
        target = self._file(slot, checkpoint_id)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with temporary.open("xb") as stream:
                stream.write(self._content(slot, checkpoint_id))
                stream.flush()
                os.fsync(stream.fileno())
            with suppress(FileExistsError):
                os.link(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(target.parent)

    def forget(self, below: int) -> None:
        """Remove the files of settled epochs."""
        for entry in os.listdir(self._place()):
            match = _NAME.fullmatch(entry)
            if match is not None and int(match["epoch"]) < below:
                (self._place() / entry).unlink(missing_ok=True)

    def _content(self, slot: int, epoch: int) -> bytes:
        job, sink = self._opened()
        said = {"version": 1, "job": job.name, "generation": job.generation, "sink": sink}
        said |= {"epoch": epoch, "slot": slot, "committed_at": datetime.now(UTC).isoformat()}
        return json.dumps(said, ensure_ascii=False).encode() + b"\n"

    def _opened(self) -> tuple[JobIdentity, SinkName]:
        if self._scope is None:
            raise OncewardError("the checkpoint committer was used before it was opened", hint="call open first")
        return self._scope

    def _place(self) -> Path:
        job, sink = self._opened()
        return self.folder / f"{job.digest}_{job.generation}_{sink_digest(sink)}"

    def _file(self, slot: int, epoch: int) -> Path:
        return self._place() / f"{epoch}-{slot}.json"
