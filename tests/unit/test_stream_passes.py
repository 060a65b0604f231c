"""A pass over a resource, with the API server in memory: what is written down, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from exactlyonce.api.conditions import rendered
from exactlyonce.api.resource import Stream
from exactlyonce.api.status import Phase, StreamStatus
from exactlyonce.control.cluster import ClusterRefused, ClusterUnreachable, ResourceNotAccepted
from exactlyonce.control.deletion import FINALIZER, Deletion
from exactlyonce.control.metrics import OperatorMetrics
from exactlyonce.control.observer import Observer
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.control.stream_pass import REFUSED_SECONDS, Next, NotPutTogether, Parts, StreamPasses
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import SecretMissing, Unreachable
from exactlyonce.launch.port import DriverState, Ended, Gone, NeverStarted, Running
from exactlyonce.monitor.monitor import Monitor
from exactlyonce.offsets import Epoch
from exactlyonce.reconcile.loop import StatusConflict
from tests.resource_cases import changed, document

KEY = Key("shop", "orders")
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


def passes(server: ServerInMemory, may_act: Callable[[], bool] = lambda: True) -> StreamPasses:
    """Return passes of streams whose secret is missing."""

    def no_parts(stream: Stream, given: Mapping[str, Any], statuses: ResourceStatus, report: Any) -> Parts:
        raise NotPutTogether(SecretMissing("Secret shop/warehouse is not there; create it."))

    api: Any = server
    observer = Observer(Monitor(), OperatorMetrics(CollectorRegistry()))
    rendering = lambda status, found: rendered(status, found, NOW)  # noqa: E731 - a word for the line below
    return StreamPasses(api, no_parts, lambda found: 1.0, rendering, may_act, observer)


def acted(server: ServerInMemory) -> None:
    """Let the status know what the resource asks for, as a pass before has written it."""
    passes(server).run(KEY)


@pytest.mark.parametrize("phase", [Phase.HALTED, Phase.COMPLETED, Phase.SUSPENDED])
def test_a_missing_secret_does_not_wake_a_stream_that_has_come_to_rest(phase: Phase) -> None:
    server = ServerInMemory(resource())
    acted(server)
    assert server.resource is not None
    server.resource = changed(server.resource, {"status.phase": str(phase), "status.message": "why it rests"})
    passes(server).run(KEY)
    assert (server.resource["status"]["phase"], server.resource["status"]["message"]) == (phase, "why it rests")


def test_a_missing_secret_is_told_once_and_looked_for_again() -> None:
    server = ServerInMemory(resource())
    following = passes(server).run(KEY)
    assert following.after_seconds is not None
    assert server.resource is not None
    assert server.resource["status"]["message"] == "Secret shop/warehouse is not there; create it."
    writes = server.writes
    passes(server).run(KEY)
    assert (server.events, server.writes) == (["PutOff"], writes)


@pytest.mark.parametrize("spec", [{"history": 6}, {"history": 3}], ids=["another value", "the default, written out"])
def test_each_generation_of_a_resource_is_said_to_have_been_looked_at(spec: dict[str, Any]) -> None:
    server = ServerInMemory(resource())
    passes(server).run(KEY)
    assert server.resource is not None
    changes = {"metadata.generation": 2, **{f"spec.{key}": value for key, value in spec.items()}}
    server.resource = changed(server.resource, changes)
    passes(server).run(KEY)
    assert server.resource["status"]["observedGeneration"] == 2
    writes = server.writes
    passes(server).run(KEY)
    assert server.writes == writes, "once"


def test_a_driver_that_runs_is_still_said_to_run_while_a_secret_is_missing() -> None:
    server = ServerInMemory(resource(Phase.RUNNING))
    passes(server).run(KEY)
    assert server.resource is not None
    assert server.resource["status"]["phase"] == "Running"


def test_a_spec_that_turns_invalid_is_told_once_and_its_driver_left_alone() -> None:
    server = ServerInMemory(resource(Phase.RUNNING, spec__delivery="Sometimes"))
    passes(server).run(KEY)
    passes(server).run(KEY)
    assert server.resource is not None
    assert server.resource["status"]["phase"] == "Running"
    assert "Sometimes" in server.resource["status"]["specProblem"]
    assert server.events == ["SpecInvalid"]


def test_an_operator_without_the_lease_writes_nothing() -> None:
    server = ServerInMemory(resource())
    assert passes(server, may_act=lambda: False).run(KEY) == Next(2.0), "it may lead again a moment later"
    assert (server.writes, server.events) == (0, [])


@pytest.mark.parametrize(
    ("problem", "seconds"), [(ClusterUnreachable("silence"), 5.0), (ClusterRefused("no right"), REFUSED_SECONDS)]
)
def test_an_api_server_that_does_not_help_puts_the_pass_off(problem: Exception, seconds: float) -> None:
    assert passes(ServerInMemory(resource(), problem=problem)).run(KEY) == Next(seconds)


def test_a_resource_whose_status_nobody_can_write_is_told_in_an_event() -> None:
    server = ServerInMemory(resource())

    def refused(*_: object) -> dict[str, Any]:
        raise ResourceNotAccepted("The API server takes no change of it.")

    server.put_status = refused  # type: ignore[method-assign,assignment] # what a server may do
    assert passes(server).run(KEY) == Next(REFUSED_SECONDS)
    assert "NotAccepted" in server.events


def test_a_resource_that_is_gone_is_not_looked_at_again() -> None:
    assert passes(ServerInMemory(None)).run(KEY) == Next(None)


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

    def look(self, attempt: Epoch) -> DriverState:
        """Return its state."""
        return self.state

    def start(self, attempt: Epoch, brief: str | None = None) -> None:
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


def deleted(seconds_ago: float, **changes: Any) -> dict[str, Any]:
    """Return a resource that was deleted some seconds ago."""
    since = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    return resource(Phase.RUNNING, metadata__deletionTimestamp=since.isoformat(), **changes)


def delete(server: ServerInMemory, driver: OneDriver, erase: Callable[[Mapping[str, Any]], None]) -> float | None:
    """Run one step of a deletion."""
    api: Any = server
    deletion = Deletion(api, lambda found: driver, lambda found: timedelta(seconds=60), erase, lambda: True)
    assert server.resource is not None
    return deletion.run(changed(server.resource, {}))


def nothing_to_erase(found: Mapping[str, Any]) -> None:
    """Fail: nothing may be erased."""
    raise AssertionError


def silent(found: Mapping[str, Any]) -> None:
    """Be a store that does not answer."""
    raise Unreachable("The database does not answer.")


def test_a_deleted_stream_drains_its_driver_first_and_kills_it_when_that_takes_too_long() -> None:
    for seconds_ago, asked in ((10, ["drain"]), (150, ["drain", "kill"])):
        server, driver = ServerInMemory(deleted(seconds_ago)), OneDriver(Running("it runs"))
        assert delete(server, driver, nothing_to_erase) is not None
        assert driver.asked == asked
        assert server.resource is not None
        assert server.resource["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.parametrize("state", [NeverStarted(), Gone("its node is lost"), Ended("reaped", None, "it ended")])
def test_a_deleted_stream_that_retains_needs_no_store_and_is_let_go_once_its_driver_is_over(state: DriverState) -> None:
    server, driver = ServerInMemory(deleted(1)), OneDriver(state)
    assert delete(server, driver, nothing_to_erase) is None
    assert driver.asked == ["clean up to 3, keep 0"]
    assert server.resource is not None
    assert server.resource["metadata"]["finalizers"] == []


def test_a_store_that_is_silent_delays_a_deletion_for_a_bounded_time_and_an_event_says_what_is_left() -> None:
    early = ServerInMemory(deleted(200, spec__deletionPolicy="Delete"))
    assert delete(early, OneDriver(NeverStarted()), silent) is not None
    assert early.events == []
    late = ServerInMemory(deleted(400, spec__deletionPolicy="Delete"))
    assert delete(late, OneDriver(NeverStarted()), silent) is None
    assert late.events == ["LeftBehind"]
    assert late.resource is not None
    assert late.resource["metadata"]["finalizers"] == []


def test_a_deleted_stream_whose_status_is_lost_still_drains_its_driver() -> None:
    server, driver = ServerInMemory(deleted(1, status={})), OneDriver(Running("it runs"), trace=Epoch(7))
    assert delete(server, driver, nothing_to_erase) is not None
    driver.state = Gone("its node is lost")
    assert delete(server, driver, nothing_to_erase) is None
    assert driver.asked == ["drain", "clean up to 7, keep 0"]


def test_a_finalizer_of_somebody_else_stays() -> None:
    server = ServerInMemory(deleted(1, metadata__finalizers=["example.com/backup", FINALIZER]))
    delete(server, OneDriver(NeverStarted()), nothing_to_erase)
    assert server.resource is not None
    assert server.resource["metadata"]["finalizers"] == ["example.com/backup"]
