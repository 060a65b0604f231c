"""Which spec the next attempt is made of: the latest, or, after a bad update, that of the latest attempt that ran Spark.

A roll back takes the spec of that attempt as a whole, with its image; of the latest one come only the fields that the
operator alone reads, such as `suspend` and `recovery`. docs/adr/0024
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from exactlyonce.api.attempt_status import BadUpdate, GoodAttempt
from exactlyonce.api.conditions import ROLLED_BACK, rolled_back_words
from exactlyonce.api.field_classes import HOW_DRIVERS_RUN, OPERATORS_OWN, copy_field
from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.resource import ResourceInvalid, Stream, parse_stream
from exactlyonce.api.status import ConsecutiveFailures, Phase, StreamStatus
from exactlyonce.control.resource_hashes import driver_plan
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.launch.pod_endings import Reason
from exactlyonce.launch.pod_settings import PodDefaults
from exactlyonce.launch.port import Launcher, Running
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.bad_update import MANIFEST_REFUSED, NOT_CREATED, is_due

NOT_ROLLED_BACK = "NotRolledBack"

_ANY = tuple(name for name in HOW_DRIVERS_RUN if name != "restartNonce")
_POD = ("driver", "sparkUi")
_IMAGE = ("image", "imagePullPolicy", "imagePullSecrets", *_POD)
_CAUSES: Mapping[str, tuple[str, ...]] = {
    Reason.UNSCHEDULABLE: _POD,
    Reason.REJECTED_BY_NODE: _POD,
    NOT_CREATED: _POD,
    MANIFEST_REFUSED: _POD,
    Reason.IMAGE_NOT_PULLABLE: _IMAGE,
    Reason.START_TIMED_OUT: _IMAGE,
}
"""Which fields can have brought an ending about; where it is not here, any that says how drivers run, but no mere restart.

A pod that no node takes is a full cluster's doing unless its template or size was changed."""


@dataclass(frozen=True, slots=True)
class InForce:
    """What the next attempt is made of, and what stands for it; `plan` is None where the spec says it."""

    stream: Stream
    plan: str | None = None


@dataclass(frozen=True, slots=True)
class RunsOn:
    """A driver of the last good spec runs, from which no attempt may be made any more: it is left alone."""


@dataclass(frozen=True)
class Rollback:
    """Decides which spec is in force.

    `made_by` returns a stream as the spec of one of its attempts has it, where it is there and may be run. `default_image` is
    the operator's own, for streams that name none.
    """

    made_by: Callable[[Mapping[str, Any], Epoch], Stream | None] = lambda document, attempt: None
    default_image: str | None = None

    def in_force(
        self,
        document: Mapping[str, Any],
        statuses: ResourceStatus,
        latest: Stream,
        launcher: Launcher | None,
        report: Callable[[str, str], None],
    ) -> InForce | RunsOn:
        """Return what the next attempt is made of; a roll back is in the status before anything follows from it."""
        status, version = statuses.read()
        bad, good = status.bad_update, status.last_good
        if bad is None or good is None:
            return InForce(latest)
        if not self._is_of(bad, good, latest):
            statuses.carry(status.model_copy(update={"bad_update": None}))  # a person has changed it: it is tried
            return InForce(latest)
        if not is_due(status, latest.spec.recovery):
            if bad.rolled_back:
                statuses.carry(_with(status, rolled_back=False))
            return InForce(latest)
        found = self._gone_back_to(document, latest, bad, good)
        if isinstance(found, Stream):
            if not bad.rolled_back:
                _record(statuses, status, version, report)
            return InForce(found, good.plan)
        if bad.rolled_back and launcher is not None and isinstance(launcher.state_of(Epoch(status.attempt)), Running):
            return RunsOn()
        if bad.rolled_back or bad.not_rolled_back_message != found:
            statuses.write(_with(status, rolled_back=False, not_rolled_back_message=found), version)
            report(NOT_ROLLED_BACK, found)
        return InForce(latest)

    def last_good(self, document: Mapping[str, Any], status: StreamStatus) -> InForce | None:
        """Return what a stream that was rolled back continues with while its latest spec is invalid; None where it was not."""
        bad, good = status.bad_update, status.last_good
        if bad is None or good is None or not bad.rolled_back:
            return None
        before = self.made_by(document, Epoch(good.attempt))
        return InForce(before, good.plan) if before is not None and driver_plan(before.spec) == good.plan else None

    def _is_of(self, bad: BadUpdate, good: GoodAttempt, stream: Stream) -> bool:
        """Whether the next attempt of a stream would be made of what a bad update is made of.

        The image counts where nothing else has changed: then it is the operator's default that was another one.
        """
        if bad.plan != driver_plan(stream.spec):
            return False
        return bad.plan != good.plan or bad.image in (None, stream.spec.image or self.default_image)

    def _gone_back_to(
        self, document: Mapping[str, Any], latest: Stream, bad: BadUpdate, good: GoodAttempt
    ) -> Stream | str:
        """Return the stream with the last good spec, or why the stream cannot be rolled back to it."""
        before = self.made_by(document, Epoch(good.attempt))
        if before is None or driver_plan(before.spec) != good.plan:
            return (
                f"The latest spec cannot be started, and the stream cannot be rolled back to that of attempt {good.attempt}, "
                "which ran: it is no longer there, no longer valid or no longer allowed. Correct the resource."
            )
        was, asked = (it.spec.differences(*OPERATORS_OWN) for it in (before, latest))
        changed = {name for name in was.keys() | asked.keys() if was.get(name) != asked.get(name)}
        others = sorted(changed.difference(HOW_DRIVERS_RUN))
        if others:
            return (
                f"The latest spec cannot be started, and the stream is not rolled back to that of attempt {good.attempt}, "
                f"which ran: {', '.join(others)} changed as well, and such changes are never rolled back automatically. "
                "Correct the resource."
            )
        if None not in (good.image, bad.image) and good.image != bad.image:
            changed.add("image")  # that of the operator, where the spec names none
        if not changed.intersection(_CAUSES.get(bad.reason, _ANY)):
            return (
                f"The latest spec cannot be started ({bad.reason}), and nothing that can cause this has changed since attempt "
                f"{good.attempt}, which ran; rolling back to its spec would not help."
            )
        spec = before.spec.differences()
        for path in OPERATORS_OWN:
            copy_field(spec, latest.spec.differences(), path)
        try:
            return parse_stream({**document, "spec": spec}, f"the spec of attempt {good.attempt}")
        except ResourceInvalid as problem:
            return (
                f"The stream cannot be rolled back to the spec of attempt {good.attempt}: {' '.join(problem.problems)}"
            )


def stream_made_of(document: Mapping[str, Any], spec: Mapping[str, Any] | None) -> Stream | None:
    """Return a stream as an attempt's ConfigMap has its spec, with the metadata of today; None where it cannot be had."""
    try:
        return None if spec is None else parse_stream({**document, "spec": spec}, "an attempt's ConfigMap")
    except ResourceInvalid:
        return None


def defaults_in_force(defaults: PodDefaults, stream: Stream, status: StreamStatus) -> PodDefaults:
    """Return the defaults of an attempt: after a roll back with the image that the last good one ran, if it named none."""
    bad, good, image = status.bad_update, status.last_good, defaults.image
    if bad is None or good is None or not bad.rolled_back or good.image is None or image is None:
        return defaults
    if stream.spec.image is not None or driver_plan(stream.spec) != good.plan:
        return defaults
    return replace(defaults, image=replace(image, name=good.image))


def _record(statuses: ResourceStatus, status: StreamStatus, version: str, report: Callable[[str, str], None]) -> None:
    """Write down that the last good spec is in force from now on, and tell it; the next attempt waits for nothing."""
    rolled_back = _with(status, rolled_back=True, not_rolled_back_message=None)
    if status.phase in (Phase.HALTED, Phase.BACKING_OFF):
        rolled_back = rolled_back.model_copy(
            update={"phase": Phase.PENDING, "consecutive_failures": ConsecutiveFailures()}
        )
    statuses.write(rolled_back, version, TransitionReason.ROLLED_BACK)
    report(ROLLED_BACK, rolled_back_words(rolled_back) or "")


def _with(status: StreamStatus, **changes: object) -> StreamStatus:
    assert status.bad_update is not None, "only a bad update is changed"
    return status.model_copy(update={"bad_update": status.bad_update.model_copy(update=changes)})
