"""A real transaction pooler on loopback: PgBouncer as installed, or Debian's package unpacked into the cache.

Nothing is installed: apt fetches the package and the libraries that are missing, checked against its signed lists, and
they are unpacked outside the tree.
"""

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

from exactlyonce_spark.jars import cache_folder
from testbed import processes
from testbed.postgres import NOBODY

_PACKAGE = "pgbouncer"


class PgBouncerUnavailable(RuntimeError):
    """There is no PgBouncer on this machine and none could be fetched; the message says why and what to do."""


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
    cached = cache_folder() / _PACKAGE
    if (cached / "usr/sbin/pgbouncer").exists():
        return cached
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix=".fetch-") as scratch:
        complete = Path(scratch) / "complete"
        installed = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if installed is not None:
            (complete / "usr/sbin").mkdir(parents=True)
            shutil.copy(installed, complete / "usr/sbin/pgbouncer")
        else:
            _unpack_packages(Path(scratch), complete)
        if not cached.exists():
            complete.rename(cached)
    return cached


def _unpack_packages(scratch: Path, target: Path) -> None:
    missing = [tool for tool in ("apt-get", "dpkg-deb", "dpkg-query") if shutil.which(tool) is None]
    if missing:
        raise PgBouncerUnavailable(
            f"PgBouncer is not installed and {', '.join(missing)} is not here; install PgBouncer."
        )
    options: list[str] = []
    try:
        _download(scratch, [_PACKAGE], options)
    except PgBouncerUnavailable:
        options = _own_lists(scratch)  # the machine has no lists of packages, as in a fresh container
        _run(["apt-get", *options, "update"], scratch)
        _download(scratch, [_PACKAGE], options)
    package = next(scratch.glob(f"{_PACKAGE}_*.deb"))
    _download(scratch, _libraries_not_installed(package), options)
    for archive in scratch.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(archive), str(target)], scratch)


def _libraries_not_installed(package: Path) -> list[str]:
    depends = _run(["dpkg-deb", "-f", str(package), "Depends"], package.parent)
    names = [words.split()[0] for words in depends.split(",") if words.strip()]
    return [name for name in names if name.startswith("lib") and not _is_installed(name)]


def _is_installed(package: str) -> bool:
    command = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout == "installed"


def _download(folder: Path, packages: list[str], options: list[str]) -> None:
    if packages:
        _run(["apt-get", *options, "download", *packages], folder)


def _own_lists(scratch: Path) -> list[str]:
    """Options that keep apt's lists in a folder of ours, which needs no root."""
    lists, cache = scratch / "apt/lists", scratch / "apt/cache"
    (lists / "partial").mkdir(parents=True)
    (cache / "archives/partial").mkdir(parents=True)
    return ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}", "-o", "APT::Sandbox::User=root"]


def _run(command: list[str], folder: Path) -> str:
    try:
        ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, timeout=300)
    except subprocess.TimeoutExpired:
        problem = "it took too long"
    else:
        if ran.returncode == 0:
            return ran.stdout
        problem = " ".join(ran.stderr.split())[-300:]
    raise PgBouncerUnavailable(
        f"PgBouncer is not installed and `{' '.join(command)}` failed ({problem}); install the package {_PACKAGE}."
    )
