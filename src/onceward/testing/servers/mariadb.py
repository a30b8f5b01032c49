"""MariaDB, or MySQL where that is what is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from onceward.testing.servers.base import Server


class MariaDBServer(Server):
    """A server of its own with one database `test` and a user `root` without a password. Settings are its options."""

    package: ClassVar[str] = "mariadb-server"
    programs: ClassVar[tuple[str, ...]] = ("mariadbd", "mysqld")
    accounts: ClassVar[tuple[str, ...]] = ("mysql", "nobody")

    @property
    def url(self) -> str:
        """Where sinks find it."""
        return f"mysql://root@127.0.0.1:{self.port}/test"

    def prepare(self) -> None:
        """See `Server.prepare`."""
        self.run(
            self.find("mariadb-install-db", "mysql_install_db"),
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            f"--tmpdir={self.folder}",
            "--auth-root-authentication-method=normal",
        )

    def command(self) -> Sequence[str]:
        """See `Server.command`."""
        settings = {"bind-address": "127.0.0.1", "local-infile": 1, **self.settings}
        return [
            self.program,
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            # A server that starts removes the temporary tables that it finds there, also those of its neighbours.
            f"--tmpdir={self.folder}",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            f"--port={self.port}",
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    def answers(self) -> bool:
        """See `Server.answers`."""
        self.query("CREATE DATABASE IF NOT EXISTS test", database=None)
        return True

    def query(self, statement: str, *parameters: object, database: str | None = "test") -> list[tuple[Any, ...]]:
        """Run one statement in a session of its own; the rows, if it has any."""
        import pymysql

        session = pymysql.connect(host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True)
        with session, session.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())
