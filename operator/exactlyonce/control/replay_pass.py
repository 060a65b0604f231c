"""One pass over the StreamReplays of one stream: the first in turn is followed, the others wait. Blocking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.bounded_text import one_line
from exactlyonce.control.lease import NotLeading
from exactlyonce.control.next_pass import Next
from exactlyonce.control.replay_keys import stream_of
from exactlyonce.control.replay_refusals import FINAL
from exactlyonce.control.replay_resource import KeepsReplays, ReplayResource, in_turn, replay_status_of
from exactlyonce.control.replay_scheduling import MakesReplays, Scheduling
from exactlyonce.control.replay_step import Step, StepPorts
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import ExactlyOnceError, Unreachable
from exactlyonce.launch.port import LaunchFailed
from exactlyonce.monitor.replays import ReplaysView, view_of
from exactlyonce.reconcile.loop import StatusConflict
from exactlyonce.reconcile.stream_replay import moved

log = logging.getLogger("exactlyonce.operator")

_AGAIN_SECONDS, _REFUSED_SECONDS, _NOT_LEADING_SECONDS = 5.0, 30.0, 2.0
_SCHEDULE_SECONDS = 60.0


class RunsReplays(KeepsReplays, MakesReplays, Protocol):
    """Where StreamReplays are kept and made."""


@dataclass(frozen=True)
class ReplayPasses:
    """Runs passes; safe to use from several threads, one per stream.

    Streams without the labels of `selector` are another operator's, and so are their replays.
    """

    server: RunsReplays
    ports: StepPorts
    may_act: Callable[[], bool]
    selector: str = ""
    noted: Callable[[Key, ReplaysView | None], None] = lambda _key, _view: None

    def run(self, key: Key) -> Next:
        """Run one pass over the replays that `key` stands for. Never raises for what the outside world does."""
        try:
            return replace(self, ports=self.ports.for_a_pass())._run(stream_of(key))
        except StatusConflict:
            return Next(0.0, "conflict")
        except NotLeading:
            return Next(_NOT_LEADING_SECONDS, "not_leading")
        except ExactlyOnceError as problem:  # of the API server: there is no status to tell it in
            log.warning("%s", problem, extra={"stream": str(key), "reason": "BackingOff"})
            # No sweep finds a stream whose schedule only waits, so what is refused is asked for again, too.
            is_silent = isinstance(problem, Unreachable)
            return Next(_AGAIN_SECONDS, "unreachable") if is_silent else Next(_REFUSED_SECONDS, "refused")

    def _run(self, key: Key) -> Next:
        replays = self.server.replays(key)
        stream = self.server.stream(key, self.selector)
        if stream is None and self.selector and self.server.stream(key) is not None:
            return Next(None, "not_ours")
        following = self._turns(key, stream, in_turn(replays))
        if following.after_seconds is None and not ((stream or {}).get("spec") or {}).get("replay"):
            self.ports.stores.forget(key)
        if stream is None:
            return following
        again = self._scheduled(key, stream, replays)
        return Next(
            min((it for it in (following.after_seconds, again) if it is not None), default=None), following.outcome
        )

    def _note(self, key: Key, stream: Mapping[str, Any] | None, turns: list[dict[str, Any]]) -> None:
        """Tell the monitor how the replays fare that have not ended."""
        found = [
            (
                str(it["metadata"]["name"]),
                replay_status_of(it),
                datetime.fromisoformat(it["metadata"]["creationTimestamp"]),
            )
            for it in turns
        ]
        is_suspended = bool(((stream or {}).get("spec") or {}).get("suspend"))
        self.noted(key, view_of(found, is_suspended=is_suspended))

    def _scheduled(self, key: Key, stream: Mapping[str, Any], replays: list[dict[str, Any]]) -> float | None:
        """Create what the stream's own schedule asks for; what keeps it from that is logged, and tried again."""
        try:
            return Scheduling(self.server, self.ports, self.may_act).create_due(stream, replays)
        except (StatusConflict, NotLeading):
            raise
        except ExactlyOnceError as problem:
            log.warning("%s", problem, extra={"stream": str(key), "reason": "NotScheduled"})
            self.server.tell(stream, "NotScheduled", one_line(str(problem), 1000) + ".", warning=True)
            return _SCHEDULE_SECONDS

    def _turns(self, key: Key, stream: Mapping[str, Any] | None, turns: list[dict[str, Any]]) -> Next:
        if not turns:
            self._note(key, stream, [])
            return Next(None, "no_replay")
        first, *others = (ReplayResource(self.server, document, self.may_act, self.ports.now) for document in turns)
        for other in others:
            # Without the name of the one whose turn it is: each turn would write all of them.
            words = "It waits for its turn: the StreamReplays of one stream run one at a time."
            if other.status.phase is ReplayPhase.PENDING:
                other.write(moved(other.status, ReplayPhase.PENDING, words, self.ports.now()))
        following = self._told(first, key, stream)
        self._note(key, stream, [it.document for it in (first, *others) if not it.status.phase.is_final])
        return Next(0.0, "replay") if first.status.phase.is_final and others else following

    def _told(self, resource: ReplayResource, key: Key, stream: Mapping[str, Any] | None) -> Next:
        """Take the next step of a replay; what keeps it from that is told in its status."""
        try:
            return Step(self.ports, resource, key, stream).take()
        except (StatusConflict, NotLeading):
            raise
        except FINAL as problem:
            resource.write(
                moved(resource.status, ReplayPhase.REFUSED, one_line(str(problem), 2000) + ".", self.ports.now())
            )
            return Next(None, "refused")
        except (ExactlyOnceError, LaunchFailed) as problem:
            status = resource.status
            resource.write(status.model_copy(update={"message": one_line(str(problem), 2000) + "."}))
            is_silent = isinstance(problem, Unreachable)
            return Next(_AGAIN_SECONDS if is_silent else _REFUSED_SECONDS, "waiting")
