"""The command in a process of its own, made by a server that has imported everything already: a second saved each."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from onceward.cli.main import COMMANDS

_MADE = multiprocessing.get_context("forkserver")
# The subcommands, and what a job's file imports.
_MADE.set_forkserver_preload([*(f"onceward.cli.{name}" for name in COMMANDS), "onceward.job", "onceward.sinks.files"])


def onceward(*arguments: object, answer: str = "") -> subprocess.CompletedProcess[str]:
    """As typed, with an answer for what it asks."""
    words = [str(argument) for argument in arguments]
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "0").write_text(answer)
        process = _MADE.Process(target=_command, args=(words, name))
        process.start()
        process.join()
        printed = [(folder / number).read_text() for number in ("1", "2")]
    assert process.exitcode is not None
    return subprocess.CompletedProcess(["onceward", *words], process.exitcode, *printed)


def _command(arguments: Sequence[str], folder: str) -> None:
    """In the new process: standard streams are files, and the rest is `onceward`'s."""
    for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY | os.O_CREAT), (2, os.O_WRONLY | os.O_CREAT)):
        opened = os.open(f"{folder}/{number}", flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv = ["onceward", *arguments]

    from onceward.cli.main import main

    main()
