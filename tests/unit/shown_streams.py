"""Streams that show where they have landed in a lease table, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from exactlyonce.api.conditions import conditions_of
from exactlyonce.positions.ranges import Positions
from exactlyonce.reconcile.loop import Watching
from exactlyonce.source.port import NotShown, ShownStream
from tests.simulation.source import MemoryTopic
from tests.unit.passes import FIRST, KEYS, Machine


class ShownTopic(MemoryTopic):
    """A topic whose landed positions are shown; `answer` is what showing them comes to."""

    shown: list[tuple[int, ...]]
    streams: list[ShownStream]
    answer: Callable[[], NotShown | None]
    naming_others = False
    """Whether the resource names another source than the one that was read."""

    def origin_ids(self, origins: Sequence[str]) -> dict[str, str]:
        held = set() if self.naming_others else {key.origin for key in self.ends}
        return {origin: self.id_of(origin) for origin in origins if origin in held}

    def show_landed(self, stream: ShownStream, landed: Positions) -> NotShown | None:
        self.shown.append(tuple(landed.values()))
        self.streams.append(stream)
        return self.answer()


def reading(start: dict[str, str], table: str = "app") -> dict[str, Any]:
    """Return the spec of a stream that starts there and shows itself in a lease table."""
    kinesis = {"streamName": "orders", "region": "eu-central-1", "secretRef": {"name": "aws"}, "start": start}
    return {"source": {"kinesis": {**kinesis, "leaseTable": {"tableName": table}}, "format": {"schema": "id INT"}}}


def started_from(start: dict[str, str]) -> Machine:
    """Return a world whose first driver was just seen to run, of a stream with that start."""
    made = Machine()
    made.topic = ShownTopic(dict.fromkeys(KEYS, 100))
    made.topic.shown, made.topic.streams, made.topic.answer = [], [], lambda: None
    made.spec, made.looks = reading(start), True
    for _ in ("it is started", "it is seen to run"):
        assert made.run_pass() == Watching(FIRST)
    return made


def condition(machine: Machine) -> tuple[str, str, str] | None:
    """Return the condition that tells whether what has landed is shown: its status, reason and message."""
    found = {each.type: each for each in conditions_of(machine.statuses.status, 1, machine.now)}
    held = found.get("LandedShown")
    return None if held is None else (str(held.status), held.reason, held.message)
