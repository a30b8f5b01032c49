"""Kafka's own consumer, in Java: what the applications of most users read with. One process for each partition."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from onceward.testing.servers import KafkaServer

from .processes import ended_at_last


class ConsoleReader:
    """Reads what is committed, from the beginning and all the while; without a group, so nothing is read twice."""

    def __init__(self, server: KafkaServer, topic: str, *, partitions: int, folder: Path) -> None:
        self._server, self._topic = server, topic
        self._outputs = [folder / f"read-{topic}-{number}" for number in range(partitions)]
        self._open = ExitStack()

    def __enter__(self) -> ConsoleReader:
        for number, path in enumerate(self._outputs):
            with path.open("wb") as output, path.with_suffix(".err").open("wb") as errors:
                process = subprocess.Popen(
                    self._server.console_consumer(self._topic, partition=number),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    cwd=self._server.folder,
                    start_new_session=True,
                )
            self._open.enter_context(ended_at_last(process))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def rows(self) -> list[dict[str, Any]]:
        """What it has printed by now, each partition in its order; a line that is not whole is not there yet."""
        lines = [line for path in self._outputs for line in path.read_text().splitlines(keepends=True)]
        return [json.loads(line) for line in lines if line.endswith("\n")]
