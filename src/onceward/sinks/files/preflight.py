"""Before the start: do the columns fit, and does the file system allow all that publishing will ask for?"""

from __future__ import annotations

import secrets

import pyarrow as pa

from onceward.errors import TargetRefused
from onceward.sinks.files.compatibility import refuse_stream
from onceward.sinks.files.options import Options
from onceward.sinks.files.publish import give_name
from onceward.storage import make_folders, sync_folder

# The folder in which it lists what its readers shall see.
_SPARKS_LIST = "_spark_metadata"


def check(options: Options, schema: pa.Schema, *, output_mode: str) -> None:
    """Try the format on the schema; make the folder, and try it out."""
    refuse_stream(schema, options, output_mode=output_mode)
    if (options.path / _SPARKS_LIST).exists():
        raise TargetRefused(
            f"Spark's own file sink has written to {options.path}: Spark reads only what its {_SPARKS_LIST} lists",
            hint=f"give another folder; or, when that query is stopped for good, remove {_SPARKS_LIST}: what it "
            "wrote and did not commit becomes visible then",
        )
    try:
        make_folders(options.hidden)
        sync_folder(options.path)
        _try_out(options)
    except OSError as error:
        raise TargetRefused(
            f"cannot write to {options.path}: {error.strerror or error}",
            hint="give a folder that this user may create and write, on one file system with all of its folders",
        ) from error


def _try_out(options: Options) -> None:
    """One file through all that publishing needs of the file system."""
    token = secrets.token_hex(8)
    staged = options.hidden / f"try-{token}"
    visible = options.path / f".onceward-try-{token}"
    try:
        staged.touch()
        give_name(staged, visible)
    finally:
        staged.unlink(missing_ok=True)
        visible.unlink(missing_ok=True)
