"""A stream whose spec cannot be used at all: its driver is watched, or drained for a suspension; nothing is started."""

from __future__ import annotations

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import Phase
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.launch.port import Launcher, NeverStarted, Running
from exactlyonce.positions.ranges import Epoch


def watch_driver(statuses: ResourceStatus, launcher: Launcher | None, *, rests: bool) -> bool:
    """Look at the driver, write a phase that fits, and return whether it runs.

    How a driver ended is reported by the first pass that has a spec.
    """
    status, version = statuses.read()
    attempt = Epoch(status.attempt)
    state = NeverStarted() if launcher is None or not attempt else launcher.state_of(attempt)
    has_driver, phase = isinstance(state, Running), status.phase
    if phase not in (Phase.HALTED, Phase.COMPLETED):
        if rests:
            phase = Phase.DRAINING if has_driver else Phase.SUSPENDED
        elif not has_driver:
            phase = Phase.BACKING_OFF if attempt else Phase.PENDING
    if phase is not status.phase:
        changed = status.model_copy(update={"phase": phase, "message": ""})
        statuses.write(changed, version, TransitionReason.SPEC_UNUSABLE)
    if phase is Phase.DRAINING and launcher is not None:
        launcher.drain(attempt)
    statuses.flush()
    return has_driver
