"""The demo's input: orders with unique ids, produced while the stream runs."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from decimal import Decimal

from confluent_kafka import Producer

ORDERS_A_SECOND = 4000
_BURST = 200


@dataclass
class Orders:
    """Produces `total` orders over the partitions of a topic, never further than it is allowed.

    What an order holds follows from its id, so that what was produced can be told without asking the stream.
    """

    bootstrap_servers: str
    topic: str
    partitions: int
    total: int
    allowed: int = 0
    produced: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Produce in a thread until `stop`, or until all orders are with the broker."""
        self._thread = threading.Thread(target=self._work, name="orders", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def amount_of_all(self) -> Decimal:
        """Return the sum of all orders."""
        return sum((_amount(number) for number in range(self.total)), Decimal(0))

    def _work(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "linger.ms": 20, "enable.idempotence": True, "log_level": 2}
        )
        while self.produced < self.total and not self._stop.is_set():
            until = min(self.produced + _BURST, self.allowed, self.total)
            for number in range(self.produced, until):
                producer.produce(self.topic, _order(number), partition=number % self.partitions)
            producer.poll(0)
            self.produced = until
            self._stop.wait(_BURST / ORDERS_A_SECOND)
        producer.flush(30)


def _amount(number: int) -> Decimal:
    return Decimal(number % 100_000) / 100


def _order(number: int) -> bytes:
    order = {
        "id": number,
        "customer": f"customer-{number % 997}",
        "amount": f"{_amount(number):.2f}",
        "ts": f"2026-01-02T03:{number // 60 % 60:02d}:{number % 60:02d}Z",
    }
    return json.dumps(order).encode()
