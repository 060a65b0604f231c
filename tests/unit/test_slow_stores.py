"""The operator's workers while a store hangs: its streams wait, every other stream's passes are run."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from exactlyonce.control.bulkheads import Bulkheads
from exactlyonce.control.next_pass import Next
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import StoreBusy
from tests.operator_in_process import running_operator, until

WORKERS = 4
HUNG = [Key("shop", f"orders-{number}") for number in range(20)]
WELL = [Key("web", f"clicks-{number}") for number in range(20)]


@dataclass
class Passes:
    """Each pass asks the Kafka of all streams, then its namespace's warehouse; that of `shop` hangs until it is let go."""

    bulkheads: Bulkheads
    let_go: threading.Event = field(default_factory=threading.Event)
    run_of: Counter[Key] = field(default_factory=Counter)
    busy: Counter[Key] = field(default_factory=Counter)

    def run(self, key: Key) -> Next:
        """Be one pass."""
        self.bulkheads.belongs(key, "kafka", f"warehouse of {key.namespace}")
        try:
            with self.bulkheads.store("kafka").entered():
                pass
            with self.bulkheads.store(f"warehouse of {key.namespace}").entered():
                if key in HUNG:
                    self.let_go.wait(60)
        except StoreBusy:
            self.busy[key] += 1
            return Next(0.1)
        self.run_of[key] += 1
        return Next(None)


@pytest.fixture
def passes() -> Iterator[Passes]:
    made = Passes(Bulkheads(WORKERS, hangs_seconds=0.3))
    yield made
    made.let_go.set()


def test_a_store_that_hangs_delays_its_own_streams_only_and_they_are_run_when_it_answers(passes: Passes) -> None:
    async def scene() -> None:
        due = [*HUNG, *WELL]  # those that will hang come first
        async with running_operator(passes, passes.bulkheads, WORKERS, due) as operator:
            await until(lambda: all(passes.run_of[key] for key in WELL), "the others are run while the store hangs")
            assert not any(passes.run_of[key] for key in HUNG)
            await until(lambda: len(operator.pulse.in_hand) <= passes.bulkheads.share, "the other workers are free")
            passes.let_go.set()
            await until(lambda: all(passes.run_of[key] for key in HUNG), "its streams are run when it answers")

    asyncio.run(scene())
