"""A person acts on a halt that offers a new start. What the stream does from then on is checked as for a new stream."""

from __future__ import annotations

import re

from exactlyonce.api.resource import FRESH
from exactlyonce.api.status import Phase
from exactlyonce.reconcile.verdicts import FirstStart, SeedAndPublish
from tests.simulation.at_rest import annotate_a_new_start, set_aside
from tests.simulation.world import SimulatedWorld

_OFFER = re.compile(rf"{re.escape(FRESH)}=([0-9a-f-]{{36}})")


def starts_over(world: SimulatedWorld) -> bool:
    """Annotate a stream that has halted, once in a run; whether that was done."""
    offered = _OFFER.search(world.statuses.status.message)
    wanted = "start over" in world.scenario.hazards and world.life_before is None
    if offered is None or not wanted or world.stateful or any(not operator.ended for operator in world.operators):
        return False
    annotate_a_new_start(world, offered[1])
    set_aside(world)
    world.statuses.status = world.statuses.status.model_copy(update={"phase": Phase.PENDING})
    world.statuses.version += 1
    world.draining = False
    world.start_operator("operator of the new start")
    return True


def first_batch(world: SimulatedWorld) -> int:
    """Return the first batch of the stream's life: its seed, where a person has asked for a new start."""
    if world.life_before is None:
        return 0
    decisions = [attempt.decision for attempt in world.journal.attempts if attempt.decision is not None]
    starts = [decision for decision in decisions if isinstance(decision.verdict, FirstStart)]
    seeds = [action for action in starts[-1].actions if isinstance(action, SeedAndPublish)] if starts else []
    return seeds[0].seed_batch if seeds else 0
