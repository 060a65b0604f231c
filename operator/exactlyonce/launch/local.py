"""Drivers as processes of this machine.

A process and all its children carry a marker in their environment, so a driver is found again by whoever looks, its
launcher or not, and its death is proven by the absence of every marked process. psutil reads the process table.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psutil

from exactlyonce.api.conditions import NO_PROGRESS
from exactlyonce.launch.driver_document import PROGRESS_VARIABLE, DriverDocument
from exactlyonce.launch.last_message import parse_last_message
from exactlyonce.launch.port import NO_ORDERS, DriverState, Ended, Gone, LaunchFailed, NeverStarted, Orders, Running
from exactlyonce.launch.secrets import SECRETS_FOLDER
from exactlyonce.launch.silence import Doubts, Silence, touched_at
from exactlyonce.positions.ranges import Epoch

MARKER = "EXACTLYONCE_LAUNCH"
_HOME = "attempt-"
_STRAGGLERS_SECONDS = 20.0
_EXEC_SECONDS = 5.0
_SECOND_LOOK_SECONDS = 5.0
"""A driver that seems silent has this long to beat once more, five times over."""
_SECOND_LOOK_AT_PROGRESS_SECONDS = 60.0
"""The same for progress, of which there are signs every ten seconds."""


class Unresponsive(StrEnum):
    """What is done with a driver that has stopped touching its heartbeat."""

    KILL = "kill"
    ABANDON = "abandon"
    """It is left as it is, as a lost node leaves it: a successor is started and the fence holds."""


@dataclass
class LocalLauncher:
    """A `Launcher` of processes: one folder per attempt below `folder`, with spec, log, heartbeat and last message.

    `document` is what every driver of this stream is started with, before its orders. `run_id` tells this stream's processes
    from those of another state folder. With `read_only` nothing is killed when it is looked at; what is left of a driver then
    counts as alive.
    """

    folder: Path
    document: DriverDocument
    secrets: Path
    run_id: str
    environment: Mapping[str, str] = field(default_factory=dict)
    unresponsive: Unresponsive = Unresponsive.KILL
    unresponsive_seconds: float = 60.0
    progress_seconds: float | None = None
    progress_doubt_seconds: float = _SECOND_LOOK_AT_PROGRESS_SECONDS
    with_parent: bool = True
    read_only: bool = False
    _children: dict[Epoch, subprocess.Popen[bytes]] = field(default_factory=dict)
    _doubts: Doubts = field(default_factory=Doubts)

    def latest(self) -> Epoch:
        """Return the highest attempt that has a folder."""
        return max(self._attempts(), default=Epoch(0))

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return how the driver is, from the process table."""
        home = self._home(attempt)
        if not home.exists():
            return NeverStarted()
        child = self._children.get(attempt)
        status = None if child is None else child.poll()
        if (home / "abandoned").exists() and any(self._processes(attempt)):
            return Gone("it did not answer any more and was left as it is")
        if status is None and (child is not None or self._main(attempt) is not None):
            return self._if_responsive(attempt)
        if self.read_only and any(self._processes(attempt)):
            return Gone("its main process has ended and others of it have not")
        self._end_stragglers(attempt)
        words = parse_last_message(_text_of(home / "last-words.json"))
        ended = "was killed" if status is not None and status < 0 else "ended"
        how = ended if status is None else f"{ended} (status {status})"
        detail = f"it {how} without a last message; its log is {home / 'log'}"
        return Ended(f"no process of attempt {attempt} is left on this machine", words, detail)

    def start(self, attempt: Epoch, orders: Orders = NO_ORDERS) -> None:
        """Start the driver in a session of its own; one that was started before is left as it is."""
        assert orders.brief is None, "here the loop reaches every checkpoint itself"
        home = self._home(attempt)
        try:
            home.mkdir(parents=True)
            (home / "spec.json").write_text(self.document.ordered(orders).render())
        except FileExistsError:
            return
        except OSError as problem:
            raise LaunchFailed(
                f"The driver's folder {home} cannot be written ({problem}); make room there."
            ) from problem
        command = [sys.executable, "-m", "exactlyonce_spark", "--spec", str(home / "spec.json")]
        command += ["--epoch", str(attempt), "--last-words", str(home / "last-words.json")]
        command += ["--heartbeat", str(home / "heartbeat")]
        if self.with_parent:
            command += ["--parent", str(os.getpid())]
        environment = {
            **os.environ,
            **self.environment,
            MARKER: self._marker(attempt),
            SECRETS_FOLDER: str(self.secrets),
            PROGRESS_VARIABLE: str(home / "progress"),
        }
        try:
            with (home / "log").open("wb") as log:
                self._children[attempt] = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as problem:
            raise LaunchFailed(f"The driver cannot be started ({problem}); its folder is {home}.") from problem

    def drain(self, attempt: Epoch) -> None:
        """Send SIGTERM to the driver's main process."""
        self._signal_main(attempt, signal.SIGTERM)

    def kill(self, attempt: Epoch, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to every process of the driver."""
        for process in self._processes(attempt):
            _send(process, how)

    def is_stopped(self, attempt: Epoch) -> bool:
        """Whether the driver's main process is stopped by a signal."""
        main = self._main(attempt)
        try:
            return main is not None and main.status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return False

    def wait(self, attempt: Epoch, seconds: float) -> None:
        """Return when the driver's main process has ended, and after `seconds` at the latest."""
        child = self._children.get(attempt)
        if child is None:
            threading.Event().wait(min(seconds, 0.2))
            return
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def clean_up(self, writer: Epoch | None, keep: int) -> None:
        """Remove the folders of all attempts but the last `keep`, the writer's of the checkpoint and those that still run.

        The newest is always kept: it says which number is next. Without the writer's, its death would not be proven.
        """
        for attempt in self._attempts()[: -max(1, keep)]:
            if attempt != writer and not any(self._processes(attempt)):
                shutil.rmtree(self._home(attempt), ignore_errors=True)

    def log_of(self, attempt: Epoch) -> Path:
        """The file that holds the driver's log."""
        return self._home(attempt) / "log"

    def _if_responsive(self, attempt: Epoch) -> DriverState:
        home = self._home(attempt)
        beat_at, progress_at = touched_at(home / "heartbeat") or home.stat().st_mtime, touched_at(home / "progress")
        silent = time.time() - beat_at
        if silent >= self.unresponsive_seconds:
            told = f"it has not answered for {silent:.0f} s"
            return self._if_silent_still(attempt, Silence(beat_at, told, None, _SECOND_LOOK_SECONDS))
        stands = 0.0 if progress_at is None else time.time() - progress_at
        if progress_at is not None and self.progress_seconds is not None and stands >= self.progress_seconds:
            told = f"it has shown no progress for {stands:.0f} s (driver.progressTimeout)"
            return self._if_silent_still(attempt, Silence(progress_at, told, NO_PROGRESS, self.progress_doubt_seconds))
        return Running(f"processes of this machine; its log is {home / 'log'}")

    def _if_silent_still(self, attempt: Epoch, silence: Silence) -> DriverState:
        """Give a driver up that has given no sign for too long, at the second look."""
        home = self._home(attempt)
        if self.read_only:
            return Gone(silence.told)
        if not self._doubts.are_over(attempt, silence):
            return Running(f"processes of this machine; {silence.told}; its log is {home / 'log'}")
        if self.unresponsive is Unresponsive.ABANDON:
            (home / "abandoned").touch()
            return Gone(f"{silence.told} and was left as it is")
        self._end_stragglers(attempt)
        detail = f"{silence.told} and was killed; its log is {home / 'log'}"
        return Ended(f"no process of attempt {attempt} is left on this machine", None, detail, silence.reason)

    def _end_stragglers(self, attempt: Epoch) -> None:
        """Kill what is left of a driver, its JVM and its workers, and wait until every process has ended."""
        deadline = time.monotonic() + _STRAGGLERS_SECONDS
        while left := list(self._processes(attempt)):
            for process in left:
                _send(process, signal.SIGKILL)
            psutil.wait_procs(left, timeout=1)
            if time.monotonic() > deadline:
                raise LaunchFailed(
                    f"Processes {[process.pid for process in left]} of attempt {attempt} cannot be killed."
                )

    def _main(self, attempt: Epoch) -> psutil.Process | None:
        """The process that leads the driver's session: the JVM and the workers are in it or below it."""
        for process in self._processes(attempt):
            try:
                if os.getsid(process.pid) == process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    return process
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue  # it has ended since it was listed
        return None

    def _signal_main(self, attempt: Epoch, how: signal.Signals) -> None:
        main = self._main(attempt)
        if main is not None:
            _send(main, how)

    def _processes(self, attempt: Epoch) -> Iterator[psutil.Process]:
        marker = self._marker(attempt)
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and _environment_of(process).get(MARKER) == marker:
                    yield process
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue

    def _attempts(self) -> list[Epoch]:
        names = [entry.name.removeprefix(_HOME) for entry in self.folder.glob(f"{_HOME}*")]
        return sorted(Epoch(int(name)) for name in names if name.isdecimal())

    def _home(self, attempt: Epoch) -> Path:
        return self.folder / f"{_HOME}{attempt:06d}"

    def _marker(self, attempt: Epoch) -> str:
        return f"{self.run_id}/{attempt}"


def _environment_of(process: psutil.Process) -> dict[str, str]:
    """Return a process's environment; of one that is in the middle of an exec(2), the one that it gets.

    In between it shows neither environment nor arguments, and on a busy machine that takes milliseconds: a driver that
    was just started, or what it starts, would seem not to be there. Kernel threads never show any, and have no program.
    """
    deadline = time.monotonic() + _EXEC_SECONDS
    while not (environment := process.environ()) and time.monotonic() < deadline:
        if process.cmdline() or not process.exe():
            break
        time.sleep(0.001)
    return environment


def _send(process: psutil.Process, how: signal.Signals) -> None:
    try:
        process.send_signal(how)
    except psutil.NoSuchProcess:
        return


def _text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""
