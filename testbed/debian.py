"""Programs of Debian packages, unpacked into the cache and not installed.

apt fetches a package and the libraries that are missing, checked against its signed lists; no root is needed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exactlyonce_spark.jars import cache_folder


class PackageUnavailable(RuntimeError):
    """The program is not on this machine and could not be fetched; the message says why and what to do."""


def ensure(package: str, program: str) -> Path:
    """Return a folder with `program`, such as `usr/sbin/pgbouncer`, and the libraries that this machine lacks; fetched once.

    A program that is installed is taken as it is.

    Raises:
        PackageUnavailable: with one sentence that says what is missing and what to do.
    """
    cached = cache_folder() / package
    if (cached / program).exists():
        return cached
    cached.parent.mkdir(parents=True, exist_ok=True)
    with _alone(cached), tempfile.TemporaryDirectory(dir=cached.parent, prefix=".fetch-") as scratch:
        if (cached / program).exists():  # fetched by another process meanwhile
            return cached
        complete = Path(scratch) / "complete"
        installed = shutil.which(Path(program).name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if installed is not None:
            (complete / program).parent.mkdir(parents=True)
            shutil.copy(installed, complete / program)
        else:
            _unpack(package, Path(scratch), complete)
        if cached.exists():  # with another program of the package
            shutil.copytree(complete, cached, symlinks=True, dirs_exist_ok=True)
        else:
            complete.rename(cached)
    return cached


@contextmanager
def _alone(cached: Path) -> Iterator[None]:
    """Wait until no other process fetches the package, so that none meets a folder that is half there."""
    with (cached.parent / f".{cached.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpack(package: str, scratch: Path, target: Path) -> None:
    missing = [tool for tool in ("apt-get", "dpkg-deb", "dpkg-query") if shutil.which(tool) is None]
    if missing:
        raise PackageUnavailable(f"{package} is not installed and {', '.join(missing)} is not here; install {package}.")
    options: list[str] = []
    try:
        _download(scratch, [package], options)
    except PackageUnavailable:
        options = _own_lists(scratch)  # the machine has no lists of packages, as in a fresh container
        _run(["apt-get", *options, "update"], scratch)
        _download(scratch, [package], options)
    archive = next(scratch.glob(f"{package}_*.deb"))
    _download(scratch, _libraries_not_installed(archive), options)
    for found in scratch.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(found), str(target)], scratch)


def _libraries_not_installed(archive: Path) -> list[str]:
    depends = _run(["dpkg-deb", "-f", str(archive), "Depends"], archive.parent)
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
    raise PackageUnavailable(f"`{' '.join(command)}` failed ({problem}); install the package by hand.")
