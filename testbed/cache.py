"""Things that take minutes to make and are kept in the user's cache: made once, also when two runs ask at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from exactlyonce_spark.jars import cache_folder

Report = Callable[[str], None]
"""Takes a line that tells how far a long step is."""


class NotMade(RuntimeError):
    """A part of the testbed could not be made; the message says what failed and how."""


def silent(_: str) -> None:
    """Report nothing."""


def key_of(files: Iterable[Path], *words: str) -> str:
    """Return a short hash of the files' names and contents, in any order, and of `words`."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    for word in words:
        digest.update(f"{word}\n".encode())
    return digest.hexdigest()[:16]


def made_once(kind: str, key: str, make: Callable[[Path], None], keep: int = 2) -> Path:
    """Return the cache's folder for `kind` and `key`, filled by `make` if it is not there.

    `make` fills a scratch folder that becomes the folder only when it returns. A second process waits for the first.
    Of the folders of this kind the `keep` newest stay, and those that somebody has `in_use`.
    """
    home = _home(kind)
    folder = home / key
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            folder.touch()
            return folder
        for left in home.glob(".making-*"):
            shutil.rmtree(left, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(dir=home, prefix=".making-"))
        try:
            make(scratch)
            scratch.chmod(0o755)
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        for old in _newest_first(kind)[keep:]:
            _remove_unless_in_use(old)
    return folder


def newest(kind: str) -> Path | None:
    """Return the folder of this kind that was made or asked for last; a `make` may begin with what is in it."""
    return next(iter(_newest_first(kind)), None)


@contextlib.contextmanager
def in_use(*folders: Path) -> Iterator[None]:
    """Keep folders of the cache from being removed, as long as this process lives at most."""
    with contextlib.ExitStack() as stack:
        for folder in folders:
            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield


def _home(kind: str) -> Path:
    return cache_folder() / "testbed" / kind


def _newest_first(kind: str) -> list[Path]:
    made = [path for path in _home(kind).iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(made, key=lambda path: -path.stat().st_mtime)


def _remove_unless_in_use(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(handle)


def run(
    command: Sequence[str],
    what: str,
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    line: Report = silent,
) -> None:
    """Run a long command; `line` gets each line that it prints.

    Raises:
        NotMade: with the last lines, if it fails.
    """
    last: list[str] = []
    with subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=directory,
        env=None if environment is None else dict(environment),
    ) as process:
        assert process.stdout is not None
        for printed in process.stdout:
            last = [*last[-25:], printed.rstrip()]
            line(printed.rstrip())
    if process.returncode:
        raise NotMade(f"{what} failed (status {process.returncode}). The last lines:\n" + "\n".join(last))


class Screen:
    """Shows lines of progress: over each other on a terminal; a few, one below the other, where it is a file."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, line: str) -> None:
        """Show a line."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K" + line[:110])
        elif self._worth_a_line(line):
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Leave the last line and begin a new one."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _worth_a_line(self, line: str) -> bool:
        """A count in brackets is shown once for each tenth."""
        head = line
        if line.startswith("  ["):
            counted, what = line[3:].split("]", 1)
            done, total = counted.split("/")
            head = f"{what} {10 * int(done) // int(total)}"
        worth, self._last = head != self._last, head
        return worth
