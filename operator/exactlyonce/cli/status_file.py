"""The status of a stream in local mode: a file, with the optimistic concurrency that the API server gives elsewhere."""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import StreamStatus
from exactlyonce.cli.whole_files import replace_whole
from exactlyonce.errors import Refused
from exactlyonce.reconcile.loop import StatusConflict
from exactlyonce.reconcile.phase_check import check_transition


class StatusUnreadable(Refused):
    """The status file holds something else."""


class StateFolderUnusable(Refused):
    """The folder that local mode keeps its state in cannot be read or written."""


class AlreadyRun(Refused):
    """Another process runs this stream from the same state folder."""


class StatusFile:
    """A `StatusStore` in one JSON file, which also holds the uid that stands for the resource's own."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._new_uid = str(uuid.uuid4())

    @property
    def uid(self) -> str:
        """The uid, kept with the first write; a lost file gets a new one."""
        return self._load()[2]

    def read(self) -> tuple[StreamStatus, str]:
        """Return the status and its version."""
        status, version, _ = self._load()
        return status, str(version)

    def write(self, status: StreamStatus, version: str, reason: TransitionReason | None = None) -> str:
        """Replace the status of that version, whole and flushed to the disk; `reason` says why its phase is another one."""
        with self._usable(), self._locked():
            before, current, uid = self._load()
            if str(current) != version:
                raise StatusConflict(f"{self._file} was written by another pass.")
            check_transition(before.phase, status.phase, reason)
            self._store(status, current + 1, uid)
        return str(current + 1)

    def exists(self) -> bool:
        """Whether the stream has ever been run from this folder."""
        return self._file.exists()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the right to run this stream from this folder.

        Raises:
            AlreadyRun: if another process holds it.
            StateFolderUnusable: if the folder cannot be written.
        """
        with self._usable():
            lock = (self._file.parent / "running.lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise AlreadyRun(
                    f"Another process runs this stream from {self._file.parent}; end that one first."
                ) from None
            yield

    def _load(self) -> tuple[StreamStatus, int, str]:
        try:
            document = json.loads(self._file.read_text())
            return StreamStatus.model_validate(document["status"]), int(document["version"]), str(document["uid"])
        except FileNotFoundError:
            return StreamStatus(), 0, self._new_uid
        except OSError as problem:
            raise self._unusable(problem) from problem
        except (ValueError, KeyError, TypeError, ValidationError) as problem:
            raise StatusUnreadable(
                f"{self._file} is not a status file of this release; delete it; the stream continues where the ledger stands."
            ) from problem

    def _store(self, status: StreamStatus, version: int, uid: str) -> None:
        document = {"uid": uid, "version": version, "status": status.to_document()}
        replace_whole(self._file, json.dumps(document, indent=2, default=str))

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            yield
        except OSError as problem:
            raise self._unusable(problem) from problem

    def _unusable(self, problem: OSError) -> StateFolderUnusable:
        folder = self._file.parent
        return StateFolderUnusable(
            f"The state folder {folder} cannot be used ({problem.strerror or problem}); name one that this user may write "
            "with --state."
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
