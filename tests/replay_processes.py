"""The attempts of a StreamReplay as processes of this machine, in the place of pods: each has a folder and a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from exactlyonce.api.resource import Stream
from exactlyonce.api.stream_replay import StreamReplay
from exactlyonce.launch.asked_ranges import AskedRange, parse_asked, render_asked
from exactlyonce.launch.driver_document import PROGRESS_VARIABLE
from exactlyonce.launch.local import MARKER
from exactlyonce.launch.pod_endings import Reason
from exactlyonce.launch.port import DriverPod, DriverState, Ended, Gone, NeverStarted, Running
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.launch.replay_pod import ReplayOrders, sink_of, with_transform
from exactlyonce.launch.secrets import SECRETS_FOLDER
from exactlyonce.positions.ranges import Epoch

LEAST_PROGRESS_SECONDS = 45.0
"""A process whose file is older hangs: much less than the least that a resource may ask for, and more than a start takes."""

ADDRESSES = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@dataclass(frozen=True)
class ReplayProcesses:
    """The attempts of one replay; `crashes` is what its processes are asked for."""

    folder: Path
    replay: StreamReplay
    stream: Stream | None
    secrets: Path
    crashes: str

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return how the process of an attempt is."""
        home = self._home(attempt)
        if not (home / "asked.json").exists():
            return NeverStarted()
        if not (home / "process").exists():
            return Gone("The record of the pod is gone.", str(Reason.RECORD_LOST))
        process = self._process(attempt)
        if process is None:
            return Ended("the process is gone", None, "it was killed" if self.report(attempt) is None else "it ended")
        file = home / "progress"
        stands = time.time() - (file if file.exists() else home / "process").stat().st_mtime
        hangs = f"It has shown no progress for {stands:.0f} s." if stands > LEAST_PROGRESS_SECONDS else None
        return Running(f"process {process.pid}", pod=DriverPod(home.name, None), hangs=hangs)

    def report(self, attempt: Epoch) -> ReplayReport | None:
        """Return the report of an attempt."""
        try:
            return ReplayReport.parse((self._home(attempt) / "report.json").read_text())
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def asked(self) -> tuple[AskedRange, ...] | None:
        """Return what the latest attempt was given."""
        homes = sorted(self.folder.glob(f"{self.replay.metadata.name}-*/asked.json"))
        return parse_asked(homes[-1].read_text()) if homes else None

    def sink(self, attempt: Epoch) -> Mapping[str, Any] | None:
        """Return the sink that an attempt was started for."""
        file = self._home(attempt) / "sink.json"
        return dict(json.loads(file.read_text())) if file.exists() else None

    def start(self, attempt: Epoch, orders: ReplayOrders) -> None:
        """Write what the attempt is given, and start its process; what is there already is left as it is."""
        assert self.stream is not None, "what names no stream is not started"
        home, stream = self._home(attempt), with_transform(self.stream, self.replay)
        home.mkdir(parents=True, exist_ok=True)
        if not (home / "asked.json").exists():
            spec = stream.spec
            document = ReplayDocument(
                stream.stream_id,
                spec.differences(),
                "local[2]",
                orders.ranges,
                {**spec.spark_conf, **ADDRESSES},
                self.replay.spec.chunk,
            )
            (home / "replay.json").write_text(document.render())
            (home / "sink.json").write_text(json.dumps(sink_of(self.stream)))
            (home / "half").write_text(render_asked(orders.asked))
            (home / "half").replace(home / "asked.json")
        if (home / "process").exists():
            return
        command = [sys.executable, "-m", "exactlyonce_spark.replay_driver", "--document", str(home / "replay.json")]
        environment = {
            **os.environ,
            "EXACTLYONCE_CRASH": self.crashes,
            SECRETS_FOLDER: str(self.secrets),
            PROGRESS_VARIABLE: str(home / "progress"),
            MARKER: str(home),
        }
        with (home / "log").open("ab") as log:
            child = subprocess.Popen(
                [*command, "--report", str(home / "report.json")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        (home / "process").write_text(f"{child.pid} {psutil.Process(child.pid).create_time()}")

    def kill(self, attempt: Epoch) -> None:
        """Kill the process and its JVM."""
        self._signal(attempt, signal.SIGKILL)

    def drain(self, attempt: Epoch) -> None:
        """Ask the process to end."""
        self._signal(attempt, signal.SIGTERM)

    def _signal(self, attempt: Epoch, how: signal.Signals) -> None:
        process = self._process(attempt)
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, how) if how is signal.SIGKILL else process.send_signal(how)

    def _process(self, attempt: Epoch) -> psutil.Process | None:
        """Return the process, unless it has ended; one of the same number that began at another time is not it."""
        pid, created = (self._home(attempt) / "process").read_text().split()
        try:
            process = psutil.Process(int(pid))
            if process.create_time() != float(created) or process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.NoSuchProcess:
            return None
        return process

    def _home(self, attempt: Epoch) -> Path:
        return self.folder / f"{self.replay.metadata.name}-{attempt:03d}"
