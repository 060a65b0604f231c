"""`exactlyonce run`: the loop of one stream with processes for drivers."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType
from typing import assert_never

import click

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import ConsecutiveFailures, Phase
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Done, Halted, StreamLoop, Waiting, Wanted, Watching
from exactlyonce.signal_request import SignalRequest

_LOOK_SECONDS = 0.5
_PROGRESS_SECONDS = 5.0


def run_stream(opened: LocalStream, *, as_json: bool) -> int:
    """Run a stream until it is done, halts or is interrupted, and return the exit status."""
    report = _json_line if as_json else _text_line
    with opened.statuses.running():
        start_over(opened)
        stop = _Stop()
        with stop.listening():
            return _Runner(opened, report, stop).run()


def start_over(opened: LocalStream) -> None:
    """Running a stream again is a person's act: what halted or completed starts over; attempts continue counting."""
    status, version = opened.statuses.read()
    if status.phase in (Phase.HALTED, Phase.COMPLETED, Phase.SUSPENDED, Phase.BACKING_OFF):
        changed = status.model_copy(update={"phase": Phase.PENDING, "consecutive_failures": ConsecutiveFailures()})
        opened.statuses.write(changed, version, TransitionReason.PERSON_ACTED)


@dataclass
class _Stop:
    """The ask to end: once after the current batch, twice at once."""

    asked: SignalRequest = field(default_factory=SignalRequest)
    times: int = 0

    def listening(self) -> _Listening:
        return _Listening(self)

    def note(self, _signal: int, _frame: FrameType | None) -> None:
        self.times += 1
        self.asked.set()


class _Listening:
    """Takes SIGINT and SIGTERM while it is entered."""

    def __init__(self, stop: _Stop) -> None:
        self._stop = stop
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> None:
        for name in (signal.SIGINT, signal.SIGTERM):
            self._before[name] = signal.signal(name, self._stop.note)

    def __exit__(self, *_: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type] # what signal.signal returned


class _Runner:
    """Passes over the stream until it has come to an end."""

    def __init__(self, opened: LocalStream, report: Callable[[str, str], None], stop: _Stop) -> None:
        self._opened = opened
        self._report = report
        self._stop = stop
        self._loop: StreamLoop = opened.loop(report)
        self._wanted = Wanted.REST if opened.stream.spec.suspend else Wanted.RUN
        self._shown: tuple[datetime, int | None] = (datetime.now(UTC), None)
        self._cleaned_up: Epoch | None = None

    def run(self) -> int:
        while True:
            result = self._loop.run_pass(self._wanted)
            match result:
                case Watching(attempt=attempt):
                    self._clean_up_once(attempt)
                    if self._stop.asked.is_set():
                        return self._drain(attempt)
                    self._opened.launcher.wait(attempt, _LOOK_SECONDS)
                    self._show_progress()
                case Waiting(until=until):
                    seconds = (until - datetime.now(UTC)).total_seconds()
                    if self._stop.asked.wait(max(seconds, 0.0)):
                        return 0
                case Halted():
                    return 1
                case Done() if self._wanted is Wanted.REST:
                    self._report(
                        "Suspended", "The stream is suspended, as spec.suspend says; set it to false to run it."
                    )
                    return 0
                case Done(completed=completed):
                    # A driver also drains when an earlier `run` was killed; then nobody has asked this one to end.
                    if completed or self._stop.asked.is_set():
                        return 0
                case _:
                    assert_never(result)

    def _drain(self, attempt: Epoch) -> int:
        """End the driver after its current batch, and by force when that takes longer than the stream allows."""
        timeout = self._opened.stream.spec.drain_timeout
        self._report("Draining", f"Attempt {attempt} ends after the current batch; Ctrl-C once more ends it at once.")
        self._opened.launcher.drain(attempt)
        deadline = datetime.now(UTC) + timeout
        while isinstance(result := self._loop.run_pass(), Watching):
            if self._stop.times > 1 or datetime.now(UTC) > deadline:
                self._opened.launcher.kill(attempt)
            self._opened.launcher.wait(attempt, _LOOK_SECONDS)
        return 1 if isinstance(result, Halted) else 0

    def _show_progress(self) -> None:
        """Tell every few seconds how far the stream has landed, if it has."""
        at, batch = self._shown
        now = datetime.now(UTC)
        if (now - at).total_seconds() < _PROGRESS_SECONDS:
            return
        self._shown = (now, batch)
        view = self._view()
        if view is not None and view.stream.landed_batch != batch:
            self._shown = (now, view.stream.landed_batch)
            positions = view.landed.positions.text(self._opened.stream.spec.source.spec.position_text)
            self._report("Landed", f"Up to batch {view.stream.landed_batch}: {positions}")

    def _view(self) -> LedgerView | None:
        """Return what the ledger says, if it answers."""
        try:
            return self._opened.ledger.view(self._opened.stream.stream_id)
        except ExactlyOnceError:
            return None

    def _clean_up_once(self, attempt: Epoch) -> None:
        """Let go of earlier attempts that nobody needs any more, when a new one has been started."""
        if attempt == self._cleaned_up:
            return
        view = self._view()
        if view is not None:
            self._opened.launcher.clean_up(view.stream.writer, keep=self._opened.stream.spec.history + 1)
            self._cleaned_up = attempt


def _text_line(kind: str, words: str) -> None:
    click.echo(f"{datetime.now(UTC):%H:%M:%S} {click.style(kind, bold=True)}: {words}")


def _json_line(kind: str, words: str) -> None:
    click.echo(json.dumps({"time": datetime.now(UTC).isoformat(), "reason": kind, "message": words}))
