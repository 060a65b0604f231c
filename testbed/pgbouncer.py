"""A real transaction pooler on loopback: PgBouncer as installed, or Debian's package unpacked into the cache."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from testbed import debian, processes
from testbed.postgres import NOBODY

PgBouncerUnavailable = debian.PackageUnavailable
"""There is no PgBouncer on this machine and none could be fetched."""


@dataclass
class PgBouncer:
    """A pooler in transaction mode before the server on `server_port`; a context manager that leaves nothing running.

    `users` are the names and passwords of those who may log in; the server is asked with the same ones.
    """

    folder: Path
    server_port: int
    users: Mapping[str, str]
    pool_size: int = 5
    port: int = field(default_factory=processes.free_port)
    _process: subprocess.Popen[bytes] | None = None
    _scratch: Path | None = None

    def __enter__(self) -> Self:
        program = ensure_program()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._scratch = Path(tempfile.mkdtemp(prefix="testbed-pgbouncer-"))
        self._scratch.chmod(0o755)
        unpacked = self._scratch / "unpacked"
        shutil.copytree(program, unpacked)  # the cache may be where the user it becomes cannot read
        log = self.folder / "pgbouncer.log"
        command = [str(unpacked / "usr/sbin/pgbouncer"), str(self._write_configuration())]
        libraries = ":".join(str(folder) for folder in sorted({file.parent for file in unpacked.rglob("*.so*")}))
        user = NOBODY if os.geteuid() == 0 else None  # like PostgreSQL, it refuses to run as root
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
        self._process = processes.start(command, log, environment=environment, user=user)
        processes.wait_until_ready(
            self._process, lambda: processes.port_answers(self.port), "PgBouncer", log, timeout_seconds=30
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            processes.stop(self._process, signal.SIGTERM)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _write_configuration(self) -> Path:
        assert self._scratch is not None
        users = self._scratch / "users.txt"
        users.write_text("".join(f'"{name}" "{password}"\n' for name, password in self.users.items()))
        configuration = self._scratch / "pgbouncer.ini"
        configuration.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.server_port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {users}\n"
            f"pool_mode = transaction\ndefault_pool_size = {self.pool_size}\n"
            "server_login_retry = 1\nquery_wait_timeout = 5\n"
        )
        return configuration


def ensure_program() -> Path:
    """Return a folder with `usr/sbin/pgbouncer` and the libraries that this machine lacks, fetching them once.

    Raises:
        PgBouncerUnavailable: with one sentence that says what is missing and what to do.
    """
    return debian.ensure("pgbouncer", "usr/sbin/pgbouncer")
