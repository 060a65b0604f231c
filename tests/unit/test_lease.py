"""The Lease: one holder at a time, and a holder stops before another may start."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from exactlyonce.control.lease import (
    KubernetesLeaseStore,
    Lease,
    LeaseConflict,
    LeaseRecord,
    LeaseTimes,
    LeaseUnreachable,
)

TIMES = LeaseTimes(15.0, 10.0, 2.0)


@dataclass
class Clock:
    """A clock that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Store:
    """A Lease with versions. `reachable` and `slow_seconds` say how it answers."""

    clock: Clock
    record: LeaseRecord = field(default_factory=lambda: LeaseRecord(None, 0, "", None))
    writes: int = 0
    reachable: bool = True
    slow_seconds: float = 0.0

    def read(self) -> LeaseRecord:
        self._answer()
        return self.record

    def write(self, record: LeaseRecord, duration_seconds: int) -> LeaseRecord:
        self._answer()
        if record.version != self.record.version:
            raise LeaseConflict
        self.writes += 1
        self.record = replace(record, renewed=f"{record.renewed} {self.writes}", version=str(self.writes))
        return self.record

    def _answer(self) -> None:
        self.clock.now += self.slow_seconds
        if not self.reachable:
            raise LeaseUnreachable


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    return Store(clock)


def candidate(name: str, store: Store, clock: Clock) -> Lease:
    return Lease(name, store, clock, TIMES)


def test_the_first_one_takes_it_and_the_second_waits(store: Store, clock: Clock) -> None:
    first, second = candidate("a", store, clock), candidate("b", store, clock)
    assert first.step()
    assert not second.step()
    assert (first.is_held, second.is_held) == (True, False)


def test_a_silent_holder_is_followed_after_the_duration_and_has_stopped_long_before(store: Store, clock: Clock) -> None:
    first, second = candidate("a", store, clock), candidate("b", store, clock)
    first.step()
    second.step()
    begun = clock.now
    while not second.step():
        clock.now += 0.5
        assert not (first.is_held and second.is_held)
        assert clock.now - begun < 60
    assert not first.is_held
    assert clock.now - begun >= TIMES.duration_seconds
    assert store.record.transitions == 1


def test_a_holder_that_cannot_renew_stops_within_the_time_it_trusts(store: Store, clock: Clock) -> None:
    lease = candidate("a", store, clock)
    lease.step()
    store.reachable = False
    clock.now += TIMES.trust_seconds - 1
    assert lease.step(), "what was held is trusted for a while"
    clock.now += 1
    assert not lease.step()
    store.reachable = True
    assert lease.step()


def test_time_counts_from_before_the_request_that_renewed(store: Store, clock: Clock) -> None:
    lease = candidate("a", store, clock)
    store.slow_seconds = 6.0
    assert not lease.step(), "two answers of 6 s each: what was renewed is older than it is trusted for"


def test_two_that_take_it_at_once_do_not_both_get_it(store: Store, clock: Clock) -> None:
    first, second = candidate("a", store, clock), candidate("b", store, clock)
    before = store.record
    assert first.step()
    store_read = store.read
    store.read = lambda: before  # type: ignore[method-assign] # the second one has read before the first one wrote
    assert not second.step()
    store.read = store_read  # type: ignore[method-assign] # as it was
    assert not second.is_held


def test_a_released_lease_is_taken_at_once(store: Store, clock: Clock) -> None:
    first, second = candidate("a", store, clock), candidate("b", store, clock)
    first.step()
    first.release()
    assert not first.is_held
    assert second.step()


def test_releasing_what_another_one_holds_leaves_it(store: Store, clock: Clock) -> None:
    first, second = candidate("a", store, clock), candidate("b", store, clock)
    first.step()
    second.release()
    assert store.record.holder == "a"


def test_the_moments_of_a_lease_go_back_as_the_api_server_takes_them() -> None:
    """Go reads a MicroTime with six digits, a T and a Z only; the Python client gives a datetime."""
    renewed = datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC)
    spec = SimpleNamespace(holder_identity="a", lease_transitions=1, renew_time=renewed, acquire_time=renewed)
    lease = SimpleNamespace(spec=spec, metadata=SimpleNamespace(resource_version="7"))
    sent: list[dict[str, Any]] = []
    api = SimpleNamespace(
        read_namespaced_lease=lambda *_, **__: lease,
        replace_namespaced_lease=lambda name, namespace, body, **_: sent.append(body),
    )
    store = KubernetesLeaseStore(api, "eo", "lease")
    store.write(replace(store.read(), holder=None), 1)
    assert sent[0]["spec"]["renewTime"] == sent[0]["spec"]["acquireTime"] == "2026-03-01T12:00:01.000000Z"
