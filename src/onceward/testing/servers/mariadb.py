"""MariaDB, and MySQL as `tools/setup-maven-servers` brings it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from onceward.testing.servers.base import Server, ServerMissing

_PROJECT = Path(__file__).resolve().parents[4]


class MariaDBServer(Server):
    """A server of its own with one database `test` and a user `root` without a password. Settings are its options."""

    package: ClassVar[str] = "mariadb-server"
    programs: ClassVar[tuple[str, ...]] = ("mariadbd",)
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
            *self.places(),
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            f"--port={self.port}",
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    def places(self) -> list[str]:
        """Where it keeps what. One that starts removes the temporary tables that it finds, also its neighbours'."""
        return ["--no-defaults", f"--datadir={self.folder / 'data'}", f"--tmpdir={self.folder}"]

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


class MySQLServer(MariaDBServer):
    """The same of Oracle's server, which makes its data folder itself. As root it stays root: another account need not
    be able to read the project's folder."""

    package: ClassVar[str] = "mysql-server"
    programs: ClassVar[tuple[str, ...]] = ("mysqld",)
    accounts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **settings: str | int) -> None:
        super().__init__(**{"mysqlx": "OFF", **settings})

    @classmethod
    def find(cls, *programs: str) -> str:
        """What Maven brought, or what is installed. MariaDB has a program of that name, too."""
        brought = _PROJECT / ".jars" / "mysql-server" / "bin" / "mysqld"
        found = str(brought) if brought.exists() else super().find(*programs)
        tried = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
        if tried.returncode != 0 or "MariaDB" in tried.stdout:
            why = tried.stderr.strip() or "it is MariaDB's"
            raise ServerMissing(f"{found} is no MySQL that runs here ({why}): run tools/setup-maven-servers")
        return found

    def prepare(self) -> None:
        """See `Server.prepare`."""
        self.run(self.program, *self.places(), "--initialize-insecure")

    def places(self) -> list[str]:
        """See `MariaDBServer.places`."""
        who = ["--user=root"] if os.geteuid() == 0 else []
        return [*super().places(), f"--basedir={Path(self.program).parent.parent}", *who]
