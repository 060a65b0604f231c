"""A driver of the stream's former life: the stream was deleted and recreated, and its epochs start over.

Its pod was made before and is late: an image was pulled for minutes, a node came back. What it would land is of the former
resource, so its rows are others than those of the stream as it is now.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

from exactlyonce.ledger.fence import Fenced, claim_epoch
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import Epoch, OffsetRange, Partition
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from tests.simulation.resource import STREAM_ID
from tests.simulation.scheduler import Process
from tests.simulation.source import MemoryTopic
from tests.simulation.spark import Query
from tests.simulation.world import SimulatedWorld

TICKET = "drawn in the former life"


def start(world: SimulatedWorld) -> None:
    """Start the late driver; it tries to claim when the stream that is there now has come to its epoch."""
    epoch = Epoch(world.random.randint(1, 3))
    process = world.new_process(f"driver {epoch}.former")
    world.simulation.spawn(process, process.name, lambda: _drive(world, process, epoch))


def _drive(world: SimulatedWorld, process: Process, epoch: Epoch) -> None:
    def may_claim() -> bool:
        row = world.database.tables.rows.get(("stream", STREAM_ID))
        return (
            isinstance(row, StreamRow) and (row.epoch, row.claim) == (epoch, None) and row.checkpoint_path is not None
        )

    world.simulation.wait("its epoch", may_claim)
    ledger = world.ledger()
    try:
        permit, row = claim_epoch(ledger, STREAM_ID, epoch, process.name, TICKET)
    except Fenced:
        return
    assert row.checkpoint_path is not None
    settings = BatchSettings(world.delivery, world.commit, small_batch_records=0)
    loop = BatchLoop(ledger, permit, world.target(epoch), world.topic, settings)
    before = cast(SimulatedWorld, _World(world))
    Query(before, process, row.checkpoint_path, loop, lambda: world.draining, world.named).run()


class _World:
    """The world as the former life reads it."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self.topic = _Topic(world.topic)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)


class _Topic:
    """The topic, whose records the former transform turned into other rows."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic

    def read(self, key: Partition, offsets: OffsetRange) -> list[Hashable]:
        """Return the former life's rows."""
        return [("former", row) for row in self._topic.read(key, offsets)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)
