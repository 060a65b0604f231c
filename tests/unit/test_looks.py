"""Looks at places beside the rounds: a server that never ends its answer keeps its own streams waiting, and no others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from exactlyonce.checkpoint.store import Size
from exactlyonce.monitor.checkpoints import MOST_SECONDS, CheckpointSizes
from exactlyonce.monitor.looks import Looks, PlaceAnswer
from exactlyonce.monitor.targets import StreamKey
from tests.unit.event_loops import until


@dataclass
class Places:
    """Places of which those of hostile namespaces answer only once they are let go."""

    let_go: threading.Event = field(default_factory=threading.Event)
    asked: list[StreamKey] = field(default_factory=list)

    def query(self, key: StreamKey) -> PlaceAnswer:
        self.asked.append(key)
        if key.namespace.startswith("hostile"):
            assert self.let_go.wait(60)
        return PlaceAnswer.QUICK


@pytest.mark.parametrize("hostile", [2, 4])
def test_looks_that_never_end_leave_threads_to_others_and_their_namespace_gets_no_second_one(hostile: int) -> None:
    places, told = Places(), list[str]()
    looks = Looks("source", places.query, left_seconds=0.01)
    hang = {f"http://evil-{number}": [StreamKey(f"hostile-{number}", "a")] for number in range(hostile)}
    more = {f"http://evil-{number}/more": [StreamKey(f"hostile-{number}", "b")] for number in range(hostile)}
    quick = {"Amazon S3 bucket shop": [StreamKey("shop", "orders"), StreamKey("shop", "returns")]}

    async def play() -> None:
        looks.begin(hang, told.append)
        await until(lambda: len(looks._left) == hostile)
        for _ in range(3):
            looks.begin({**more, **hang, **quick}, told.append)
            await until(lambda: "Amazon S3 bucket shop" not in looks._asking)
        assert {key.namespace for key in places.asked} == {"shop", *(f"hostile-{it}" for it in range(hostile))}
        assert sum(key.name == "orders" for key in places.asked) == 3
        assert not [key for key in places.asked if key.name == "b"]
        places.let_go.set()
        await asyncio.gather(*looks._asking.values())
        await asyncio.gather(*looks.begin(more, told.append))
        assert sum(key.name == "b" for key in places.asked) == hostile

    asyncio.run(play())
    looks.end()


def test_a_checkpoint_whose_pages_never_end_has_no_size_and_is_left() -> None:
    class Endless:
        location = "s3a://lake/orders"

        def sizes(self) -> Iterator[Size]:
            while True:
                now[0] += 10
                yield Size()

    now = [0.0]
    told: list[str] = []
    sizes = CheckpointSizes(clock=lambda: now[0])
    sizes.watch(StreamKey("shop", "orders"), Endless())

    async def play() -> None:
        await asyncio.gather(*sizes.begin(told.append))

    asyncio.run(play())
    sizes.end()
    assert (sizes.size(StreamKey("shop", "orders")), told) == (None, ["checkpoint"])
    assert now[0] < 2 * MOST_SECONDS
