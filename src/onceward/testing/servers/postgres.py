"""PostgreSQL."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from onceward.testing.servers.base import Server


class PostgresServer(Server):
    """A cluster of its own, with one database and a superuser `owner`. Settings are those of postgresql.conf."""

    package: ClassVar[str] = "postgresql"
    programs: ClassVar[tuple[str, ...]] = ("postgres",)
    folders: ClassVar[tuple[str, ...]] = tuple(
        str(folder) for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    accounts: ClassVar[tuple[str, ...]] = ("postgres", "nobody")
    # "Fast": sessions are ended, transactions rolled back.
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    @property
    def url(self) -> str:
        """Where sinks find it."""
        return f"postgresql://owner@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        """See `Server.prepare`."""
        # Slow only because it forces a few hundred files to the disk, which nobody needs yet.
        self.run(
            self.find("initdb"),
            f"--pgdata={self.folder / 'data'}",
            "--username=owner",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        )

    def command(self) -> Sequence[str]:
        """See `Server.command`."""
        settings = {"listen_addresses": "127.0.0.1", "max_prepared_transactions": 64, **self.settings}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [self.program, "-D", str(self.folder / "data"), "-p", str(self.port), "-k", "", *options]

    def answers(self) -> bool:
        """See `Server.answers`."""
        return self.query("SELECT 1") == [(1,)]

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run one statement in a session of its own; the rows, if it has any."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.url, autocommit=True) as session, session.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall()) if cursor.description else []
