"""StreamReplays that the operator creates by itself, as a stream's `spec.replay` asks, and removes when there are many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from exactlyonce.api.replay_schedule import ReplaySchedule
from exactlyonce.api.resource import API_VERSION, KIND, ResourceInvalid, Stream
from exactlyonce.api.status import ReplaysStatus
from exactlyonce.api.stream_replay import REPLAY_KIND
from exactlyonce.control.lease import require_lease
from exactlyonce.control.replay_resource import is_finished, replay_status_of
from exactlyonce.control.replay_step import StepPorts
from exactlyonce.control.resource_status import status_of
from exactlyonce.control.wakeups import Key
from exactlyonce.crash_points import reached
from exactlyonce.errors import Refused
from exactlyonce.ledger.held import HELD
from exactlyonce.reconcile.replay_schedule import (
    MadeReplay,
    ScheduleFacts,
    counts_quarantine,
    due_at,
    look_again_at,
    name_of,
    no_longer_kept,
)

DUE = "exactlyonce.dev/due"
"""The annotation of a replay that was created for a schedule: the moment for which it was."""


class MakesReplays(Protocol):
    """Where StreamReplays are created and removed, and what a schedule has to know is written to the stream."""

    def replays(self, stream: Key) -> list[dict[str, Any]]:
        """Return every StreamReplay that names a stream."""
        ...

    def create(self, document: Mapping[str, Any]) -> bool:
        """Create a replay; False where there is one of that name already, which is left as it is."""
        ...

    def delete(self, document: Mapping[str, Any]) -> None:
        """Remove the very replay that was read; one that is gone by now is as good."""
        ...

    def put_stream_status(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of the very version of a stream that `document` names and return the stream."""
        ...


class NameTaken(Refused):
    """A StreamReplay that is not the schedule's has the name of one that is due."""


@dataclass(frozen=True)
class Scheduling:
    """Looks at the schedule of one stream after another; nothing is remembered."""

    server: MakesReplays
    ports: StepPorts
    may_act: Callable[[], bool]

    def create_due(self, document: Mapping[str, Any], replays: Sequence[Mapping[str, Any]]) -> float | None:
        """Create what is due and return in how many seconds to look again; None where only a change can matter.

        `replays` are all that name the stream.

        Raises:
            TimeZoneUnknown, NameTaken, Unreachable, Refused, StatusConflict: by situation; the next look does what this one
                has not.
        """
        if not (document.get("spec") or {}).get("replay") or "deletionTimestamp" in document["metadata"]:
            return None
        try:
            stream = self.ports.parse(document)
        except ResourceInvalid:
            return None  # the stream's own pass says so
        schedule = stream.spec.replay
        if schedule is None:
            return None
        if stream.spec.suspend:  # its replays would only wait
            schedule = schedule.model_copy(update={"suspend": True})
        since = self._since(document, schedule)
        facts = self._facts(document, stream, schedule, replays, since)
        due = due_at(schedule, facts)
        if due is not None:
            require_lease(self.may_act)
            self._create(document, _document(document, stream, schedule, due))
            reached("replay.scheduled", stream.metadata.namespace, stream.metadata.name)
            return 0.0
        for old in no_longer_kept(facts, schedule.history):
            require_lease(self.may_act)
            self.server.delete(next(it for it in replays if it["metadata"]["name"] == old.name))
        again = look_again_at(schedule, facts)
        return None if again is None else max((again - facts.now).total_seconds(), 0.0)

    def _create(self, stream: Mapping[str, Any], replay: Mapping[str, Any]) -> None:
        if self.server.create(replay):
            return
        metadata, uid = replay["metadata"], stream["metadata"]["uid"]
        key = Key(metadata["namespace"], stream["metadata"]["name"])
        if not any(it["metadata"]["name"] == metadata["name"] and _made(it, uid) for it in self.server.replays(key)):
            raise NameTaken(
                f"The StreamReplay {metadata['name']}, which is due now, cannot be created: one of that name is there, and "
                "does not belong to the schedule of this stream. Delete it."
            )

    def _since(self, document: Mapping[str, Any], schedule: ReplaySchedule) -> datetime:
        """Return since when this very schedule is known; what it would have named before was not missed."""
        status, now = status_of(document), self.ports.now().replace(microsecond=0)
        line = "" if schedule.schedule is None else f"{schedule.schedule} {schedule.time_zone}"
        is_known = status.replays is not None and status.replays.schedule == line
        if status.replays is not None and is_known and status.replays.since <= now:  # not of a clock that was set back
            return status.replays.since
        require_lease(self.may_act)
        changed = status.model_copy(update={"replays": ReplaysStatus(schedule=line, since=now)})
        rendered = {**(document.get("status") or {}), "replays": changed.to_document()["replays"]}
        self.server.put_stream_status({**document, "status": rendered})
        return now

    def _facts(
        self,
        document: Mapping[str, Any],
        stream: Stream,
        schedule: ReplaySchedule,
        replays: Sequence[Mapping[str, Any]],
        since: datetime,
    ) -> ScheduleFacts:
        is_busy = any(not is_finished(it) for it in replays)
        uid = document["metadata"]["uid"]
        made = tuple(it for found in replays if (it := _made(found, uid)) is not None)
        facts = ScheduleFacts(self.ports.now(), since, made, is_busy)
        if counts_quarantine(schedule) and not is_busy and not schedule.suspend:
            ledger = self.ports.stores.ledger(stream)
            facts = replace(facts, held=ledger.summed(stream.stream_id, HELD, facts.held_moments))
        return facts


def _made(document: Mapping[str, Any], uid: str) -> MadeReplay | None:
    """Return a replay as one of the schedule of the stream with this uid; None where it is another one."""
    metadata = document["metadata"]
    if not any(owner.get("uid") == uid for owner in metadata.get("ownerReferences") or ()):
        return None
    try:
        due = datetime.fromisoformat((metadata.get("annotations") or {})[DUE])
    except (KeyError, ValueError):
        return None
    if due.tzinfo is None:
        return None
    status = replay_status_of(document)
    created = datetime.fromisoformat(metadata["creationTimestamp"])
    ended = (status.ended_at or created) if is_finished(document) else None
    left = status.records or status.ranges  # of a source whose positions count no records, ranges alone are counted
    put_back = 0 if left is None else left.put_back
    return MadeReplay(metadata["name"], due, ended, status.started_at or created, put_back)


def _document(
    stream_document: Mapping[str, Any], stream: Stream, schedule: ReplaySchedule, due: datetime
) -> dict[str, Any]:
    metadata = stream_document["metadata"]
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": metadata["name"], "uid": metadata["uid"]}
    spec: dict[str, Any] = {"stream": stream.metadata.name, "from": {"failures": {}}}
    return {
        "apiVersion": API_VERSION,
        "kind": REPLAY_KIND,
        "metadata": {
            "name": name_of(stream.metadata.name, due),
            "namespace": stream.metadata.namespace,
            "annotations": {DUE: due.astimezone(UTC).isoformat(timespec="seconds")},
            "ownerReferences": [owner],
        },
        "spec": spec if schedule.limit is None else {**spec, "limit": schedule.limit},
    }
