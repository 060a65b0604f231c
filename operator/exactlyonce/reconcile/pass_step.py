"""What every step of a pass has: the stream, the context, and how the status is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactlyonce.api.phases import Writer, require_transition
from exactlyonce.api.resource import Stream
from exactlyonce.api.status import StreamStatus
from exactlyonce.crash_points import reached
from exactlyonce.reconcile.pass_context import PassContext


@dataclass(frozen=True)
class PassStep:
    """One step of the passes over a stream."""

    stream: Stream
    context: PassContext

    def reached(self, point: str) -> None:
        """Name a place between two effects, where a test may end the process."""
        reached(point, self.stream.metadata.namespace, self.stream.metadata.name)

    def write(self, status: StreamStatus, version: str, **changes: object) -> tuple[StreamStatus, str]:
        """Write the status with changes; return it with its new version."""
        changed = status.model_copy(update=changes)
        require_transition(status.phase, changed.phase, Writer.LOOP)
        return changed, self.context.statuses.write(changed, version)

    def write_changed(self, status: StreamStatus, version: str, changes: Mapping[str, object]) -> None:
        """Write the status if any of the changes is one."""
        if any(getattr(status, name) != value for name, value in changes.items()):
            self.write(status, version, **changes)
