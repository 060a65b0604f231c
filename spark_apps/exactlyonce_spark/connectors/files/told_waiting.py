"""What the planner of a folder tells the driver: how much has not landed, in a file that both of them reach. No pyspark here.

The planner lives in a process of its own, which Spark starts, and has just listed the folder; the driver serves the metrics. So
nobody lists a folder for its lag alone. What cannot be written or read costs the metric and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from exactlyonce.bounded_json import JsonRefused, parse_json
from exactlyonce.connectors.files.source_plan import Told, Waiting
from exactlyonce.connectors.files.source_position import to_text
from exactlyonce_spark.metrics import NotLanded

log = logging.getLogger("exactlyonce.files")

_EACH_SECONDS = 5.0
"""What has not changed is not written more often: a folder in which nothing waits is listed several times a second."""


def new_file() -> str | None:
    """Return a file of the driver's own for what its planner tells; None where the machine has no room for one."""
    prefix = f"exactlyonce-waiting-{platform.node()}-"
    try:
        _remove_of_dead_drivers(Path(tempfile.gettempdir()), prefix)
        return str(Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-")) / "waiting.json")
    except OSError as problem:
        log.warning("How many files wait is not told: %s", problem)
        return None


def _remove_of_dead_drivers(above: Path, prefix: str) -> None:
    """Remove the folders of drivers of this machine that do not run any more: one that is killed removes nothing itself."""
    for folder in above.iterdir():
        process = folder.name.removeprefix(prefix).partition("-")[0]
        if folder.name.startswith(prefix) and process.isdecimal() and not _runs(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # another user's
    return True


@dataclass
class WaitingWriter:
    """Writes what the planner tells, as a whole each time."""

    path: Path
    now: Callable[[], float] = time.monotonic
    _told: Told | None = field(default=None, init=False)
    _at: float = field(default=0.0, init=False)

    def __call__(self, told: Told) -> None:
        """Write it, if it is news."""
        at = self.now()
        if told == self._told and at - self._at < _EACH_SECONDS:
            return
        until = None if told.until is None else to_text(told.until)
        text = json.dumps([_numbers(told.waiting), None if told.left is None else _numbers(told.left), until])
        beside = self.path.with_suffix(f".{os.getpid()}")
        try:
            beside.write_text(text)
            beside.replace(self.path)
        except OSError as problem:
            log.warning("How many files wait could not be written to %s: %s", self.path, problem)
        self._told, self._at = told, at


@dataclass
class WaitingReader:
    """Reads what the planner has told last. Never raises; safe to ask from another thread while a batch lands."""

    path: str
    _landed: str | None = field(default=None, init=False)

    def note_landed(self) -> None:
        """Note that the batch that the planner has told last has landed: Spark plans the next one only after that."""
        self._landed = _read(self.path)[2]

    def not_landed(self) -> NotLanded | None:
        """Return what has not landed; None where the planner has told nothing yet."""
        waiting, left, until = _read(self.path)
        return left if until is not None and until == self._landed else waiting


def _numbers(waiting: Waiting) -> list[int | None]:
    return [waiting.files, waiting.size_bytes, waiting.oldest_milliseconds]


def _read(path: str) -> tuple[NotLanded | None, NotLanded | None, str | None]:
    try:
        match parse_json(Path(path).read_text()):
            case [waiting, left, str() | None as until]:
                return _not_landed(waiting), _not_landed(left), until
    except (OSError, UnicodeDecodeError, JsonRefused):
        pass
    return None, None, None


def _not_landed(told: object) -> NotLanded | None:
    match told:
        case [int(files), int(size_bytes), int() | None as oldest]:
            return NotLanded(files, size_bytes, None if oldest is None else oldest / 1000)
    return None
