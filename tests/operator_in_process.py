"""An operator in the test's own event loop, over passes that the test makes up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from exactlyonce.control.bulkheads import Bulkheads
from exactlyonce.control.lease import Lease, LeaseRecord
from exactlyonce.control.lifecycle import Operator
from exactlyonce.control.metrics import OperatorMetrics
from exactlyonce.control.observer import Observer
from exactlyonce.control.wakeups import Key, WakeUps
from exactlyonce.monitor.monitor import Monitor


class FreeLease:
    """A Lease that nobody else wants."""

    def read(self) -> LeaseRecord:
        return LeaseRecord(None, 0, "", None)

    def write(self, record: LeaseRecord, duration_seconds: int) -> LeaseRecord:
        return record


@asynccontextmanager
async def running_operator(
    passes: Any, bulkheads: Bulkheads, workers: int, woken: Iterable[Key]
) -> AsyncIterator[Operator]:
    """Run an operator whose passes are `passes` until the block ends; the streams of `woken` are due, in this order."""
    wakeups = WakeUps(time.monotonic, bulkheads.may_run)
    observer = Observer(Monitor(), OperatorMetrics(CollectorRegistry()))
    lease = Lease("me", FreeLease(), time.monotonic)
    operator = Operator(wakeups, passes, lease, workers, lambda: [], observer)
    stop = asyncio.Event()
    running = asyncio.create_task(operator.run(stop))
    for key in woken:
        wakeups.wake(key)
    yield operator
    stop.set()
    await running


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition that the operator's own event loop brings about."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)
