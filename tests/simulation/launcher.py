"""Where a pass keeps its status, and how it starts drivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import Phase, StreamStatus
from exactlyonce.launch.last_message import LastMessage
from exactlyonce.launch.port import NO_ORDERS, DriverState, Orders
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import StatusConflict
from exactlyonce.reconcile.phase_check import check_transition
from tests.simulation.resource import RequestedSpec
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld


@dataclass
class MemoryStatuses:
    """The status, with optimistic concurrency."""

    step: Callable[[str], None]
    status: StreamStatus = field(default_factory=StreamStatus)
    version: int = 0
    on_attempt: Callable[[int], None] = lambda number: None
    on_phase: Callable[[Phase], None] = lambda phase: None

    def read(self) -> tuple[StreamStatus, str]:
        """Return the status and its version."""
        self.step("read status")
        return self.status, str(self.version)

    def write(self, status: StreamStatus, version: str, reason: TransitionReason | None = None) -> str:
        """Replace the status of that version."""
        self.step("write status")
        if version != str(self.version):
            raise StatusConflict("the status was written meanwhile")
        check_transition(self.status.phase, status.phase, reason)
        if status.attempt != self.status.attempt:
            self.on_attempt(status.attempt)
        if status.phase is not self.status.phase:
            self.on_phase(status.phase)
        self.status = status
        self.version += 1
        return str(self.version)


@dataclass
class Driver:
    """A driver process, as the launcher knows it."""

    process: Process
    began: int
    starter: Process | None
    """The operator that started it."""
    given_up: bool = False
    words: LastMessage | None = None
    problem: BaseException | None = None

    @property
    def ended_at(self) -> int:
        """The step in which it ended."""
        return self.process.ended_at


@dataclass(frozen=True)
class LauncherOfPass:
    """The launcher as one pass has it: what it starts does what the resource asked for then."""

    world: SimulatedWorld
    requested: RequestedSpec

    def latest(self) -> Epoch:
        """Return the highest attempt that was ever started."""
        return self.world.latest()

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return how the driver of an attempt is."""
        return self.world.state_of(attempt)

    def start(self, attempt: Epoch, orders: Orders = NO_ORDERS) -> None:
        """Start the driver of an attempt, unless there is one."""
        self.world.start(attempt, self.requested, orders)

    def drain(self, attempt: Epoch) -> None:
        """Ask a driver to end after the current batch."""
        self.world.drain(attempt)

    def kill(self, attempt: Epoch) -> None:
        """End the driver of an attempt."""
        self.world.kill(attempt)
