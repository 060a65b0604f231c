"""An operator as a process that may be killed at any moment: a stream's own loop, and the passes over its StreamReplays.

The passes, the schedule, the ledger and the drivers are the real ones; the API server is a folder of files, and a pod is a
process of this machine, as the drivers of `exactlyonce run` are. `python -m tests.operator_process FOLDER` runs until
FOLDER/stop is there. Whoever starts it writes FOLDER/stream.json, which nothing else writes to.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.stream_replay import StreamReplay
from exactlyonce.cli.local_stream import LocalStream, open_stream
from exactlyonce.control.bulkheads import Store
from exactlyonce.control.replay_keys import replays_of
from exactlyonce.control.replay_ledger import GuardedReplayLedger, ReplayLedger
from exactlyonce.control.replay_pass import ReplayPasses
from exactlyonce.control.replay_resource import stream_named_by
from exactlyonce.control.replay_step import StepPorts
from exactlyonce.control.wakeups import Key
from exactlyonce.launch.backfill import Span
from exactlyonce.launch.port import Running
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.rows import FailureRow, Owner
from exactlyonce.positions.ranges import Positions
from exactlyonce.reconcile.between_times import FoundBetween
from exactlyonce.reconcile.loop import Halted, StatusConflict, StreamLoop, Waiting
from exactlyonce.reconcile.replay_choice import Shown
from tests.replay_processes import ReplayProcesses

CRASHES = "EXACTLYONCE_TEST_DRIVER_CRASHES"
"""The environment variable with the crashes that the stream's drivers and its replays are asked for."""

PACE = "EXACTLYONCE_TEST_PACE"
"""How many times as fast as the world's goes the clock by which replays are scheduled and wait; 1 where it is not set."""


@dataclass(frozen=True)
class Files:
    """The API server: a file for each resource, replaced as a whole; only the operator writes replays and statuses."""

    folder: Path

    def stream(self, key: Key, selector: str = "") -> dict[str, Any] | None:
        """Return the stream, with the status that an operator has written."""
        document: dict[str, Any] = json.loads((self.folder / "stream.json").read_text())
        status = self.folder / "stream-status.json"
        return {**document, "status": json.loads(status.read_text())} if status.exists() else document

    def replays(self, stream: Key) -> list[dict[str, Any]]:
        """Return the StreamReplays of a stream."""
        found = [json.loads(file.read_text()) for file in sorted(self.folder.glob("replay-*.json"))]
        return [it for it in found if stream_named_by(it) == stream.name]

    def put_status(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of a replay."""
        name, metadata = self._file(document), document["metadata"]
        if not name.exists():
            raise StatusConflict("it is gone")
        found = json.loads(name.read_text())
        if found["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise StatusConflict("it has changed")
        version = str(int(metadata["resourceVersion"]) + 1)
        changed = {**found, "status": document["status"], "metadata": {**metadata, "resourceVersion": version}}
        self._written(name, changed)
        return changed

    def put_stream_status(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of the stream."""
        self._written(self.folder / "stream-status.json", document["status"])
        return dict(document)

    def create(self, document: Mapping[str, Any]) -> bool:
        """Create a replay, unless one of that name is there."""
        name = document["metadata"]["name"]
        if self._file(document).exists():
            return False
        now = datetime.now(UTC)
        added = {"uid": f"uid-{name}", "generation": 1, "resourceVersion": "1", "creationTimestamp": now.isoformat()}
        self._written(self._file(document), {**document, "metadata": {**document["metadata"], **added}})
        return True

    def delete(self, document: Mapping[str, Any]) -> None:
        """Remove a replay."""
        self._file(document).unlink(missing_ok=True)

    def tell(self, document: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        """Record an event."""
        self.note(f"{reason}: {message}")

    def note(self, line: str) -> None:
        """Add a line to what is told; a line is written by one call, so one that is killed leaves no half of it."""
        with (self.folder / "events").open("a") as events:
            events.write(f"{datetime.now(UTC):%H:%M:%S} {line}\n")

    def _file(self, document: Mapping[str, Any]) -> Path:
        return self.folder / f"replay-{document['metadata']['name']}.json"

    def _written(self, file: Path, document: object) -> None:
        half = file.with_suffix(f".{os.getpid()}")
        half.write_text(json.dumps(document))
        half.replace(file)


@dataclass(frozen=True)
class LocalReplayStores:
    """What passes over replays work with here: the stream's real ledger, and processes in the place of pods."""

    folder: Path
    opened: LocalStream
    secrets: Path

    def for_a_pass(self) -> LocalReplayStores:
        """Return the same."""
        return self

    def ledger(self, stream: Stream) -> ReplayLedger:
        """Return the ledger."""
        return GuardedReplayLedger(self.opened.ledger, Store("the test's", 4, lambda: 0.0))

    def shown(self, stream: Stream, kept: Sequence[RecordedFailure], life: str) -> tuple[Shown, ...]:
        """Dry runs are other tests'."""
        raise NotImplementedError

    def parts(self, stream: Stream, spans: Sequence[Span]) -> tuple[FailureRow, ...]:
        """Backfills are other tests'."""
        raise NotImplementedError

    def between(self, stream: Stream, begin: datetime, until: datetime, landed: Positions | None) -> FoundBetween:
        """As above."""
        raise NotImplementedError

    def pods(self, replay: StreamReplay, document: Mapping[str, Any], stream: Stream | None) -> ReplayProcesses:
        """Return the attempts of a replay."""
        crashes = os.environ.get(CRASHES, "")
        return ReplayProcesses(self.folder / "pods", replay, stream, self.secrets, crashes)

    def owner(self, stream: Mapping[str, Any]) -> Owner:
        """Return whose the stream is."""
        return self.opened.owner

    def forget(self, stream: Key) -> None:
        """Nothing is remembered."""


def _clock(folder: Path) -> Callable[[], datetime]:
    """Return the clock of passes over replays: it has gone ahead since the stream's secrets were written.

    Whoever comes after a process that was killed has the same, so it never goes back.
    """
    pace = int(os.environ.get(PACE, "1"))
    begin = datetime.fromtimestamp((folder / "secrets").stat().st_ctime, UTC)

    def now() -> datetime:
        real = datetime.now(UTC)
        return begin + (real - begin) * pace if pace > 1 else real

    return now


def main() -> None:
    """Run passes over the stream and over its replays in turn, until told to stop; the stream's driver is killed then."""
    folder = Path(sys.argv[1])
    files, pause, now = Files(folder), threading.Event(), _clock(folder)
    opened, loop, text = None, None, ""
    while not (folder / "stop").exists():
        latest = (folder / "stream.json").read_text()
        if opened is None or loop is None or latest != text:
            text = latest
            opened, loop = _opened(files, folder)
        _pass(loop, files)
        key = Key(opened.stream.metadata.namespace, opened.stream.metadata.name)
        stores = LocalReplayStores(folder, opened, folder / "secrets")
        ports = StepPorts(stores, functools.partial(parse_stream, where="the test"), now=now)
        outcome = ReplayPasses(files, ports, lambda: True).run(replays_of(key))
        pause.wait(min(0.3, outcome.after_seconds or 0.3))
    if opened is not None:
        _end_driver(opened, pause)


def _end_driver(opened: LocalStream, pause: threading.Event) -> None:
    """Kill the latest driver, and return when nothing of it is left."""
    latest = opened.launcher.latest()
    opened.launcher.kill(latest)
    while isinstance(opened.launcher.state_of(latest), Running):
        pause.wait(0.2)


def _opened(files: Files, folder: Path) -> tuple[LocalStream, StreamLoop]:
    stream = parse_stream(json.loads((folder / "stream.json").read_text()), "the test")
    opened = open_stream(stream, folder / "state", folder / "secrets")
    environment = {"EXACTLYONCE_CRASH": os.environ.get(CRASHES, "")}
    launcher = replace(opened.launcher, with_parent=False, environment=environment)
    opened = replace(opened, launcher=launcher)
    return opened, opened.loop(lambda kind, words: files.note(f"{kind}: {words}"))


def _pass(loop: StreamLoop, files: Files) -> None:
    match loop.run_pass():
        case Waiting(until=moment):
            files.note(f"WAITS {(moment - datetime.now(UTC)).total_seconds():.1f} s")
        case Halted():
            files.note("HALTED")
        case _:
            pass


if __name__ == "__main__":
    main()
