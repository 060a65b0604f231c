"""What the demo plays on: its own source and Postgres, the example's stream, and the local operator as a process."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg2
import yaml

from demo.sinks import Sink
from demo.sources import Source
from exactlyonce.cli.local_stream import LocalStream, choose_stream, open_stream
from exactlyonce.launch.last_message import LastMessage, parse_last_message
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.crash_points import VARIABLE
from testbed.postgres import Postgres

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "orders.yaml"
UNRESPONSIVE_SECONDS = 8
_DRAIN_SECONDS = 60

# The point inside a batch at which an act may kill the driver, each once and only when it is armed.
KILL_POINTS = ("batch.landed", "batch.rows-written", "land.before-commit")


@dataclass
class Setup:
    """The servers, the stream's file, and `exactlyonce run` as a child process."""

    folder: Path
    source: Source
    postgres: Postgres
    sink: Sink
    lines: queue.Queue[tuple[str, str]] = field(default_factory=queue.Queue)
    operator: subprocess.Popen[str] | None = None

    def prepare(self) -> None:
        """Make what the source and the sink need, the secrets and the stream's file."""
        self.source.prepare()
        self.postgres.create_database("shop")
        self.sink.prepare(self)
        login = {"host": "127.0.0.1", "port": str(self.postgres.port), "dbname": "shop", "user": "postgres"}
        secrets = {"warehouse": {**login, "password": self.postgres.password}, **self.source.secrets()}
        for name, keys in secrets.items():
            home = self.folder / "secrets" / name
            home.mkdir(parents=True)
            for key, value in keys.items():
                (home / key).write_text(value)
        self.file.write_text(yaml.safe_dump(self.document()))
        for point in KILL_POINTS:
            self._fired(point).touch()

    def document(self) -> dict[str, Any]:
        """Return the example's resource with this source, this sink and a checkpoint in the demo's folder."""
        document: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
        spec = document["spec"]
        spec["source"] = {"format": spec["source"]["format"], **self.source.spec()}
        spec |= self.sink.spec(self)
        spec["checkpoint"] = {"local": {"path": str(self.location)}}
        return document

    @property
    def file(self) -> Path:
        """The stream's file."""
        return self.folder / "orders.yaml"

    @property
    def location(self) -> Path:
        """The checkpoint location."""
        return self.folder / "checkpoint"

    def open(self) -> LocalStream:
        """Return the stream as the operator sees it."""
        return open_stream(choose_stream(self.file, None), self.folder / "state", self.folder / "secrets")

    def start_operator(self) -> None:
        """Start `exactlyonce run` and collect its lines."""
        command = [sys.executable, "-m", "exactlyonce.cli.main", "run", str(self.file), "-o", "json"]
        command += ["--state", str(self.folder / "state"), "--secrets", str(self.folder / "secrets")]
        command += ["--unresponsive", "abandon", "--unresponsive-after", str(UNRESPONSIVE_SECONDS)]
        crashes = " ".join(f"{point}=kill-driver,{self._fired(point)}" for point in KILL_POINTS)
        with (self.folder / "operator.log").open("w") as log:
            self.operator = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is ours to pass on
                env={**os.environ, VARIABLE: crashes},
            )
        threading.Thread(target=self._collect, name="operator", daemon=True).start()

    def arm(self, point: str) -> None:
        """Let the next batch that comes to `point` kill its driver there."""
        self._fired(point).unlink()

    def fired(self, point: str) -> bool:
        """Whether the kill that was armed has happened."""
        return self._fired(point).exists()

    def drain(self) -> int:
        """End the operator and its driver after the current batch and return its exit status."""
        assert self.operator is not None
        self.operator.send_signal(signal.SIGINT)
        return self.operator.wait(_DRAIN_SECONDS)

    def end_everything(self) -> None:
        """End the operator and every driver at once, whatever state they are in."""
        if self.operator is not None and self.operator.poll() is None:
            self.operator.kill()
            self.operator.wait()
        if self.operator is not None:
            opened = self.open()
            for attempt in range(1, opened.statuses.read()[0].attempt + 1):
                opened.launcher.kill(Epoch(attempt))

    def last_words(self, attempt: int) -> LastMessage | None:
        """Return what a driver has left for its launcher, if it has ended and left something."""
        file = self.open().launcher.folder / f"attempt-{attempt:06d}" / "last-words.json"
        return parse_last_message(file.read_text()) if file.exists() else None

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in the stream's database."""
        connection = psycopg2.connect(self.postgres.dsn("shop"))
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def landed(self) -> int:
        """Return how many rows have landed."""
        return self.sink.landed(self)

    def latest_landing_attempt(self) -> int:
        """Return the latest attempt that has landed rows; 0 before the first."""
        if self.sql("select to_regclass('exactlyonce.batches')")[0][0] is None:
            return 0
        return int(self.sql("select coalesce(max(epoch), 0) from exactlyonce.batches where rows_written > 0")[0][0])

    def _collect(self) -> None:
        assert self.operator is not None
        assert self.operator.stdout is not None
        for line in self.operator.stdout:
            event = json.loads(line)
            self.lines.put((event["reason"], event["message"]))

    def _fired(self, point: str) -> Path:
        return self.folder / f"fired-{point}"
