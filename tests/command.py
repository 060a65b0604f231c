"""`exactlyonce run` as a user has it: a child process, what it prints, its exit status, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
import yaml
from click.testing import CliRunner

from exactlyonce.cli.main import main
from exactlyonce.launch.local import MARKER
from exactlyonce_spark.crash_points import VARIABLE
from tests.rig import SHARED_MACHINE, Rig, TookTooLong, eventually
from tests.warm.launcher import warm_environment

_LINE = re.compile(r"\d\d:\d\d:\d\d (\w+): (\S.*)")


@dataclass
class Command:
    """`exactlyonce run` of a rig's stream; a context manager that leaves no process behind.

    `changes` are made to the resource, as in `Rig.document`. `state` and `file` are names in the rig's folder, so that a
    second command can share them or not; `alone` says that the drivers of its state folder are its own to end. A driver that
    is to crash has a JVM of its own, and so has each of a rig that is `cold`.
    """

    rig: Rig
    changes: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    state: str = "state"
    file: str = "stream.yaml"
    alone: bool = True
    _process: subprocess.Popen[bytes] | None = None
    _printed: Path | None = None

    def __enter__(self) -> Self:
        file = self.rig.folder / self.file
        file.write_text(yaml.safe_dump(self.rig.document(self.changes)))
        self._printed = file.with_suffix(f".{len(list(self.rig.folder.glob('*.printed')))}.printed")
        command = [sys.executable, "-m", "exactlyonce.cli.main", "run", str(file), *self.options]
        command += ["--state", str(self.rig.folder / self.state), "--secrets", str(self.rig.secrets)]
        cold = self.rig.cold or VARIABLE in self.environment
        with self._printed.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(self.environment if cold else warm_environment(self.environment))},
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        if self.alone:
            self.kill_drivers()

    @property
    def output(self) -> str:
        """Everything it has printed, on both streams."""
        assert self._printed is not None
        return self._printed.read_text()

    def events(self) -> list[tuple[str, str]]:
        """Return what it has told, as (reason, sentence); a line that is something else is a failure of the product."""
        lines = self.output.splitlines()
        found = [_LINE.fullmatch(line) for line in lines]
        strange = [line for line, match in zip(lines, found, strict=True) if match is None]
        assert strange == [], f"every line is one event\n{self.output}"
        return [(match[1], match[2]) for match in found if match is not None]

    def told(self, kind: str) -> list[str]:
        """Return the sentences of one kind of event."""
        return [words for found, words in self.events() if found == kind]

    def wait_for(self, kind: str, times: int = 1, seconds: float = 120.0) -> str:
        """Wait until it has told an event of this kind so often, and return the latest one's sentence."""
        self._eventually(lambda: len(self.told(kind)) >= times, f"{times} times {kind}", seconds)
        return self.told(kind)[times - 1]

    def wait_until_landed(self, seconds: float = 120.0) -> None:
        """Wait until every id that was produced is in the table."""
        self._eventually(self.rig.has_all, "every record has landed", seconds)

    def wait(self, seconds: float = 180.0) -> int:
        """Wait for its end and return the exit status."""
        assert self._process is not None
        try:
            return self._process.wait(seconds * SHARED_MACHINE)
        except subprocess.TimeoutExpired:
            raise TookTooLong(f"it has not ended within {seconds * SHARED_MACHINE:.0f} s\n{self.output}") from None

    def interrupt(self) -> int:
        """Press Ctrl-C once, and return the exit status."""
        self.signal(signal.SIGINT)
        return self.wait()

    def signal(self, how: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(how)

    def status(self) -> dict[str, Any]:
        """Return the stream's status as it stands in its file."""
        home = self.rig.folder / self.state / f"tests.{self.rig.document(self.changes)['metadata']['name']}"
        status: dict[str, Any] = json.loads((home / "status.json").read_text())["status"]
        return status

    def drivers(self) -> list[psutil.Process]:
        """Return every process that a driver of this state folder has left on this machine."""
        return [process for process in psutil.process_iter() if self._is_driver(process)]

    def kill_drivers(self) -> None:
        """Kill all of `drivers`; one may end meanwhile, because another one of them is gone."""
        for process in self.drivers():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _is_driver(self, process: psutil.Process) -> bool:
        try:
            marker = process.environ().get(MARKER, "")
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            return False
        return marker.startswith(f"{(self.rig.folder / self.state).absolute()}/")

    def _eventually(self, condition: Any, what: str, seconds: float) -> None:
        assert self._process is not None
        process = self._process
        try:
            eventually(lambda: condition() or process.poll() is not None, what, seconds)
        except TookTooLong as problem:
            logs = [log.read_text(errors="replace")[-3000:] for log in self.rig.folder.rglob("attempt-*/log")]
            raise AssertionError("\n".join([str(problem), self.output, *logs])) from problem
        assert condition(), f"it ended with status {process.poll()} before: {what}\n{self.output}"


def halting(rig: Rig, changes: Mapping[str, Any] | None = None, **options: Any) -> str:
    """Run a stream that has to halt, and return the one sentence that tells why: printed, and in the status."""
    with Command(rig, changes or {}, **options) as command:
        assert command.wait() == 1, command.output
        _, sentence = command.events()[-1]
        status = command.status()
        assert (status["phase"], status["message"]) == (
            "Halted",
            sentence.removeprefix(f"Attempt {status['attempt']}: "),
        )
        assert command.drivers() == []
    return sentence


def completing(rig: Rig, changes: Mapping[str, Any] | None = None, **options: Any) -> Command:
    """Run a stream until it has landed what the source holds."""
    with Command(rig, {"spec.trigger": {"availableNow": True}, **(changes or {})}, **options) as command:
        assert command.wait() == 0, command.output
        assert command.status()["phase"] == "Completed", command.output
        assert command.drivers() == []
    return command


def verdict_now(rig: Rig, changes: Mapping[str, Any] | None = None) -> str:
    """Return what `exactlyonce explain` says that the next attempt would decide; nothing is changed."""
    file = rig.folder / "explained.yaml"
    file.write_text(yaml.safe_dump(rig.document(changes)))
    command = ["explain", str(file), "-o", "json", "--state", str(rig.folder / "state"), "--secrets", str(rig.secrets)]
    result = CliRunner().invoke(main, command)
    return str(json.loads(result.stdout)["verdict"])


@contextmanager
def watching_command_lines() -> Iterator[set[bytes]]:
    """Collect the command line of every process of this machine while the block runs."""
    seen: set[bytes] = set()
    finish = threading.Event()

    def work() -> None:
        while not finish.wait(0.1):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(file.read_bytes())
                except OSError:
                    continue

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield seen
    finally:
        finish.set()
        thread.join()


def files_that_hold(secret: str, *folders: Path) -> list[Path]:
    """Return the files below these folders in which a secret stands."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    assert files, "there is something to look into"
    return [file for file in files if secret.encode() in file.read_bytes()]
