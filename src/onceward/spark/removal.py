"""After a clean end, for a job that asks for it: the checkpoint is removed.

It is renamed first. A crash leaves the whole checkpoint under its name, or a folder `NAME.deleted-RUN` beside it that
nobody reads any more.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from onceward.epoch import RunContext, pending_transactions
from onceward.storage import sync_folder

log = logging.getLogger("onceward")


def remove_checkpoint(root: Path, context: RunContext) -> bool:
    """Remove it, unless something of it is not settled yet, or nobody can tell; whether it is gone."""
    if (why := _why_needed(context)) is not None:
        log.warning("the checkpoint %s is not removed: %s", root, why)
        return False
    rubbish = root.with_name(f"{root.name}.deleted-{context.run}")
    try:
        os.rename(root, rubbish)
        sync_folder(root.parent)
    except OSError as error:
        log.warning("the checkpoint %s is not removed: %s", root, error.strerror or error)
        return False
    shutil.rmtree(rubbish, ignore_errors=True)
    log.info(
        "the checkpoint %s is removed after a clean end; the targets know what it delivered, so the next start must "
        "accept a fresh start: run(..., accept='fresh-start'), or --accept fresh-start",
        root,
    )
    if rubbish.exists():
        log.warning("%s could not be removed whole; nothing reads it any more", rubbish)
    return True


def _why_needed(context: RunContext) -> str | None:
    decided, settled = context.decisions.decided(), context.watermark()
    if settled < decided:
        return f"epoch {settled + 1} is decided and not settled"
    try:
        pending = [str(found.name) for found in pending_transactions(context)]
    except Exception as error:
        # Whatever a client raises: the job has ended well, and only its tidying is put off.
        return f"a target does not say what it holds of it: {type(error).__name__}: {error}"
    return f"{pending[0]} is staged and not aborted" if pending else None
