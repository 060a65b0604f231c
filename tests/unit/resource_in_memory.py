"""A resource on an API server in memory, and a launcher with one driver: what passes and deletions are tried on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from exactlyonce.api.conditions import rendered
from exactlyonce.api.resource import parse_stream
from exactlyonce.api.status import Phase, StreamStatus
from exactlyonce.control.deletion import FINALIZER
from exactlyonce.control.wakeups import Key
from exactlyonce.launch.port import NO_ORDERS, DriverState, Orders
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import StatusConflict
from tests.resource_documents import changed, document

KEY = Key("shop", "orders")
VALID = parse_stream(document(), "the test")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class ServerInMemory:
    """One resource with its versions, as the API server keeps it."""

    resource: dict[str, Any] | None
    events: list[str] = field(default_factory=list)
    problem: Exception | None = None
    writes: int = 0

    def stream(self, key: Key, selector: str = "") -> dict[str, Any] | None:
        """Return the resource."""
        if self.problem is not None:
            raise self.problem
        return None if self.resource is None else changed(self.resource, {})

    def put_status(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status."""
        return self._put(sent, {"status": sent["status"]})

    def put_finalizers(self, sent: Mapping[str, Any], finalizers: list[str]) -> dict[str, Any]:
        """Replace the finalizers."""
        return self._put(sent, {"metadata.finalizers": finalizers})

    def tell(self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        """Record an event."""
        self.events.append(reason)

    def _put(self, sent: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        assert self.resource is not None
        version = self.resource["metadata"]["resourceVersion"]
        if sent["metadata"]["resourceVersion"] != version:
            raise StatusConflict("it has changed")
        self.writes += 1
        self.resource = changed(self.resource, {**changes, "metadata.resourceVersion": str(int(version) + 1)})
        return changed(self.resource, {})


def resource(phase: Phase = Phase.PENDING, **changes: Any) -> dict[str, Any]:
    """Return a resource whose stream is in a phase."""
    metadata = {"resourceVersion": "1", "uid": "u-1", "generation": 1, "finalizers": [FINALIZER]}
    made = document({f"metadata.{key}": value for key, value in metadata.items()})
    status = StreamStatus(phase=phase, message="Batch 7 has failed 5 times.", attempt=3)
    made = changed(made, {"status": rendered(status, made, NOW)})
    return changed(made, {path.replace("__", "."): value for path, value in changes.items()})


NONE_YET = Epoch(0)


@dataclass
class OneDriver:
    """A launcher with one driver in a state."""

    state: DriverState
    asked: list[str] = field(default_factory=list)
    trace: Epoch = NONE_YET

    def latest(self) -> Epoch:
        """Return the attempt that has left a trace."""
        return self.trace

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return its state."""
        return self.state

    def start(self, attempt: Epoch, orders: Orders = NO_ORDERS) -> None:
        """Refuse: what is deleted is not started."""
        raise AssertionError

    def drain(self, attempt: Epoch) -> None:
        """Write it down."""
        self.asked.append("drain")

    def kill(self, attempt: Epoch) -> None:
        """Write it down."""
        self.asked.append("kill")

    def clean_up(self, latest: Epoch, keep: int) -> None:
        """Write it down."""
        self.asked.append(f"clean up to {latest}, keep {keep}")
