"""A stream that is deleted: its driver drains, what is to be erased is, and the resource goes within a bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from exactlyonce.api.status import Phase
from exactlyonce.control.deletion import FINALIZER, Deletion, StillErasing
from exactlyonce.control.lease import NotLeading
from exactlyonce.errors import ExactlyOnceError, StoreBusy, Unreachable
from exactlyonce.launch.port import DriverState, Ended, Gone, NeverStarted, Running
from exactlyonce.positions.ranges import Epoch
from tests.resource_documents import changed
from tests.unit.resource_in_memory import OneDriver, ServerInMemory, resource


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


class Erasures:
    """One operator's deletion of one stream, whose stores answer as the test says at a time that it says."""

    def __init__(self) -> None:
        self.server = ServerInMemory(deleted(4000, spec__deletionPolicy="Delete"))
        api: Any = self.server
        self.moment, self.answer = 0.0, ExactlyOnceError("")
        self.deletion = Deletion(
            api,
            lambda found: OneDriver(NeverStarted()),
            lambda found: timedelta(seconds=60),
            self._erase,
            lambda: True,
            lambda: self.moment,
        )

    def at(self, moment: float, answer: ExactlyOnceError) -> float | None:
        """Run a pass at that moment."""
        self.moment, self.answer = moment, answer
        assert self.server.resource is not None
        return self.deletion.run(changed(self.server.resource, {}))

    def _erase(self, found: Mapping[str, Any]) -> str | None:
        raise self.answer


def test_a_store_that_is_silent_delays_a_deletion_for_a_bounded_time_and_an_event_says_what_is_left() -> None:
    silent, erasures = Unreachable("The database does not answer."), Erasures()
    assert erasures.at(0, silent) is not None
    assert erasures.at(299, silent) is not None
    assert erasures.server.events == []
    assert erasures.at(301, silent) is None
    assert erasures.server.events == ["LeftBehind"]
    assert erasures.server.resource is not None
    assert erasures.server.resource["metadata"]["finalizers"] == []


def test_a_checkpoint_that_takes_many_passes_to_erase_is_not_left_behind_for_one_that_failed() -> None:
    silent, more, erasures = Unreachable("No answer."), StillErasing("There is more."), Erasures()
    assert erasures.at(0, silent) is not None
    assert erasures.at(200, more) == 0.0
    assert erasures.at(5000, silent) is not None
    assert erasures.at(5100, StoreBusy("Others ask it.")) is not None
    assert erasures.at(6000, StoreBusy("Others ask it.")) is not None
    assert erasures.server.events == []


def test_an_operator_that_loses_the_lease_while_it_erases_stops_there() -> None:
    erasures = Erasures()
    with pytest.raises(NotLeading):
        erasures.at(0, NotLeading("The Lease is held by another operator."))
    assert (erasures.server.writes, erasures.server.events) == (0, [])


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
