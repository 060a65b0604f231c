"""What the probes answer is told from what the process really does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from exactlyonce.control.health import Health
from exactlyonce.control.lifecycle import Pulse
from exactlyonce.control.wakeups import Key

NOW = 10_000.0


@dataclass
class Lease:
    """A lease that is held."""

    is_held: bool = True


@dataclass
class Queue:
    """Wake-ups of which so many are due."""

    waiting: int = 0


@dataclass
class Process:
    """An operator as its health sees it."""

    pulse: Pulse = field(default_factory=lambda: Pulse(last_pass=NOW - 1, last_list=NOW - 1))
    lease: Lease = field(default_factory=Lease)
    wakeups: Queue = field(default_factory=Queue)
    lease_silent_seconds: float = 1.0


def health(process: Process, *, watching: bool = True) -> Health:
    """Return the health of a process."""
    operator: Any = process
    page: Any = None
    return Health(operator, lambda: NOW, lambda: watching, page)


def test_a_process_that_does_its_work_is_alive_and_ready() -> None:
    assert (health(Process()).problem(), health(Process()).lack()) == (None, None)


def test_a_replica_that_may_not_list_the_streams_is_not_ready() -> None:
    assert health(Process(pulse=Pulse())).lack() == "the streams could not be listed of late"
    assert health(Process(pulse=Pulse(last_list=NOW - 200))).lack() is not None
    assert health(Process(), watching=False).lack() == "not watching yet"


def test_a_pass_that_does_not_end_a_lease_that_is_not_asked_for_and_a_queue_that_stands_still_are_not_alive() -> None:
    stuck = Process()
    stuck.pulse.in_hand[Key("shop", "orders")] = NOW - 1000
    assert "shop/orders has taken 1000 s" in (health(stuck).problem() or "")
    assert "last asked for 200 s ago" in (health(Process(lease_silent_seconds=200)).problem() or "")
    still = Process(pulse=Pulse(last_pass=NOW - 200), wakeups=Queue(3))
    assert "3 streams are due" in (health(still).problem() or "")
    still.lease.is_held = False
    assert health(still).problem() is None, "who does not lead runs no passes"
