"""The demo's input: orders with unique ids, produced while the stream runs."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo.sources import Source

_BURST = 200


class NotAccepted(AssertionError):
    """The source did not take an order, so that counting would say nothing of the stream."""


@dataclass
class Orders:
    """Puts `total` orders into a source, never further than it is allowed.

    What an order holds follows from its id, so that what was produced can be told without asking the stream.
    """

    source: Source
    total: int
    allowed: int = 0
    produced: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "orders"))
    _work: Future[None] | None = None

    def start(self) -> None:
        """Produce in a thread until `stop`, or until the source has all orders."""
        self._work = self._thread.submit(self._produce)

    def check(self) -> None:
        """Raise NotAccepted if the source has not taken an order."""
        problem = self._work.exception() if self._work is not None and self._work.done() else None
        if problem is not None:
            raise NotAccepted(f"The orders could not be produced: {problem}") from problem

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.shutdown()

    def amount_of_all(self) -> Decimal:
        """Return the sum of all orders."""
        return sum((_amount(number) for number in range(self.total)), Decimal(0))

    def _produce(self) -> None:
        sender = self.source.sender()
        while self.produced < self.total and not self._stop.is_set():
            until = min(self.produced + _BURST, self.allowed, self.total)
            sender.send(range(self.produced, until))
            self.produced = until
            self._stop.wait(_BURST / self.source.orders_a_second)
        sender.finish()


def order(number: int) -> bytes:
    """Return the order with this id."""
    fields = {
        "id": number,
        "customer": f"customer-{number % 997}",
        "amount": f"{_amount(number):.2f}",
        "ts": f"2026-01-02T03:{number // 60 % 60:02d}:{number % 60:02d}Z",
    }
    return json.dumps(fields).encode()


def _amount(number: int) -> Decimal:
    return Decimal(number % 100_000) / 100
