"""The JVMs of drivers that ended by themselves, kept for the next drivers of the same test process."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SOCKET = "EXACTLYONCE_TEST_JVMS"
"""The environment variable that tells a driver where to ask for a JVM."""

CLEAN = b"clean"
"""What a driver says when nothing of it is left in its JVM."""

MOST_USES, MOST_IDLE = 25, 2
_START_SECONDS, _SETTLE_SECONDS, _PAUSE_SECONDS = 240.0, 300.0, 0.02

Settings = tuple[tuple[str, str], ...]


@dataclass
class Jvm:
    """A JVM with a gateway for PySpark. It ends with its standard input, which this process holds."""

    settings: Settings
    process: subprocess.Popen[bytes]
    port: int
    secret: str
    uses: int = 0

    @classmethod
    def started(cls, settings: Settings, environment: Mapping[str, str], log: Path) -> Jvm:
        """Start one as `pyspark.java_gateway` does, and wait until it listens.

        Raises:
            OSError: if it ends before.
        """
        found = importlib.util.find_spec("pyspark")
        assert found is not None
        assert found.origin is not None
        command = [str(Path(found.origin).parent / "bin" / "spark-submit")]
        for key, value in settings:
            command += ["--conf", f"{key}={value}"]
        with tempfile.TemporaryDirectory() as scratch, log.open("ab") as output:
            told = Path(scratch) / "told"
            process = subprocess.Popen(
                [*command, "pyspark-shell"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**environment, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)},
                start_new_session=True,
            )
            pause = threading.Event()
            for _ in range(round(_START_SECONDS / _PAUSE_SECONDS)):
                if told.exists() or process.poll() is not None:
                    break
                pause.wait(_PAUSE_SECONDS)
            else:
                os.killpg(process.pid, signal.SIGKILL)
            answer = told.read_bytes()
        port, length = struct.unpack("!ii", answer[:8])
        return cls(settings, process, port, answer[8 : 8 + length].decode())

    @property
    def is_alive(self) -> bool:
        """Whether its process has not ended."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it at once, and wait until it has."""
        if self.is_alive:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Pool:
    """The JVMs of one test process, lent over a socket in `folder`: to one driver at a time."""

    folder: Path
    lent_to: dict[str, int] = field(default_factory=dict)
    """The process of the JVM that each driver got, by the driver's marker."""
    _idle: list[Jvm] = field(default_factory=list)
    _lent: set[str] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _listener: socket.socket = field(default_factory=lambda: socket.socket(socket.AF_UNIX))

    def __post_init__(self) -> None:
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def path(self) -> Path:
        """The socket at which drivers ask."""
        return self.folder / "jvms"

    @property
    def log(self) -> Path:
        """What the JVMs tell."""
        return self.folder / "log"

    def settle(self, marker: str) -> None:
        """Wait until the JVM of a driver whose process has ended has nothing of it left."""
        with self._changed:
            settled = self._changed.wait_for(lambda: marker not in self._lent, _SETTLE_SECONDS)
        assert settled, f"the JVM of {marker} has not ended"

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._lend, args=(connection,), daemon=True).start()

    def _lend(self, connection: socket.socket) -> None:
        """Lend a JVM for as long as the driver holds its end of the connection."""
        with connection, connection.makefile("rwb") as stream:
            line = stream.readline()
            if not line:
                return
            request = json.loads(line)
            settings: Settings = tuple((key, value) for key, value in request["settings"])
            with self._changed:
                self._lent.add(request["marker"])
            jvm, clean = None, False
            try:
                jvm = self._take(settings, request["environment"])
                self.lent_to[request["marker"]] = jvm.process.pid
                answer = {"port": jvm.port, "secret": jvm.secret}
                stream.write(json.dumps(answer).encode() + b"\n")
                stream.flush()
                clean = stream.readline().strip() == CLEAN
                stream.readline()  # until the process has ended: its launcher then finds nothing of it
            except OSError:
                clean = False
            finally:
                self._take_back(jvm, request["marker"], clean=clean)

    def _take(self, settings: Settings, environment: Mapping[str, str]) -> Jvm:
        with self._changed:
            for jvm in reversed(self._idle):
                if jvm.settings == settings and jvm.is_alive:
                    self._idle.remove(jvm)
                    return jvm
        return Jvm.started(settings, environment, self.log)

    def _take_back(self, jvm: Jvm | None, marker: str, *, clean: bool) -> None:
        useless = [] if jvm is None else [jvm]
        with self._changed:
            if jvm is not None and clean and jvm.is_alive and jvm.uses < MOST_USES:
                jvm.uses += 1
                self._idle.append(jvm)
                useless, self._idle = self._idle[:-MOST_IDLE], self._idle[-MOST_IDLE:]
        for one in useless:
            one.kill()
        with self._changed:
            self._lent.discard(marker)
            self._changed.notify_all()
