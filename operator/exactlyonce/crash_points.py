"""Named points at which a test may end the operator, between two of its effects.

Nothing happens unless the environment variable EXACTLYONCE_OPERATOR_CRASH is set, which only tests do, to one or more of
`POINT[@NAMESPACE/NAME]=FILE` separated by spaces. FILE is created when the point fires, and a point fires once, so that the
process's successor passes it. It ends by SIGKILL: no handler runs. The driver has points of its own.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

VARIABLE = "EXACTLYONCE_OPERATOR_CRASH"

POINTS = (
    "pass.finalizer-set",
    "pass.attempt-recorded",
    "pass.epoch-raised",
    "pass.observed",
    "pass.verdict-recorded",
    "pass.acted",
    "pass.driver-recorded",
    "start.config-map-created",
    "start.network-secret-created",
    "start.pod-created",
    "pass.running-recorded",
    "ending.seen",
    "ending.recorded",
    "ending.cleaned-up",
    "drain.recorded",
    "drain.asked",
    "deletion.drained",
    "deletion.erased",
    "deletion.cleaned-up",
)
"""Every point that each stream passes, in that order; the cluster tests go through all of them."""

HANG_POINTS = ("hang.recorded", "hang.killed")
"""Where a driver that hangs is dealt with, which few streams pass."""

REPLAY_HANG_POINTS = ("replay.hang-recorded",)
REPLAY_POINTS = ("replay.attempt-recorded", "replay.ending-seen", "replay.ending-recorded")
SCHEDULE_POINTS = ("replay.scheduled",)
"""Where a pass over the StreamReplays of a stream stands, beside the start of their pods, which is that of any."""


@dataclass(frozen=True)
class Crash:
    """One crash that a test asked for; without a stream it is the first that comes to the point."""

    point: str
    stream: str | None
    fired_file: str

    @classmethod
    def parse(cls, text: str) -> Crash:
        """Read `POINT[@NAMESPACE/NAME]=FILE`."""
        where, _, fired_file = text.partition("=")
        point, _, stream = where.partition("@")
        assert point in (*POINTS, *HANG_POINTS, *REPLAY_HANG_POINTS, *REPLAY_POINTS, *SCHEDULE_POINTS), (
            f"{point} is not a crash point of the operator"
        )
        return cls(point, stream or None, fired_file)


_asked = [Crash.parse(word) for word in os.environ.get(VARIABLE, "").split()]


def reached(point: str, namespace: str, name: str) -> None:
    """Tell that a stream's pass is at `point`; returns at once unless a test asked for a crash here."""
    for crash in _asked:
        if crash.point == point and crash.stream in (None, f"{namespace}/{name}") and first_time(crash.fired_file):
            os.kill(os.getpid(), signal.SIGKILL)


def first_time(fired_file: str) -> bool:
    """Whether a point fires now: it creates its file, and whoever finds that there has fired before."""
    try:
        os.close(os.open(fired_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
