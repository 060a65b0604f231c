"""A stream whose spec cannot be used at all: its driver is looked at, and drained if it is to rest; nothing is started."""

from __future__ import annotations

from exactlyonce.api.phases import Writer, require_transition
from exactlyonce.api.status import Phase
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.launch.port import Launcher, NeverStarted, Running
from exactlyonce.positions.ranges import Epoch


def hold(statuses: ResourceStatus, launcher: Launcher | None, *, rests: bool) -> bool:
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
    require_transition(status.phase, phase, Writer.HOLD)
    if phase is not status.phase:
        statuses.write(status.model_copy(update={"phase": phase, "message": ""}), version)
    if phase is Phase.DRAINING and launcher is not None:
        launcher.drain(attempt)
    statuses.flush()
    return has_driver
