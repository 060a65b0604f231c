"""A person looks for the rows of loads that the sink has forgotten, and answers for each of them."""

from __future__ import annotations

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.api.status import Phase
from exactlyonce.ledger.decided import Answer
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.target import LoadState
from exactlyonce_spark.two_phase_finish import LoadsInDoubt
from tests.simulation.staged_store import seen_by_a_person
from tests.simulation.two_phase_world import ANSWERED, OverLoads
from tests.simulation.world import SimulatedWorld


def answers(world: SimulatedWorld) -> bool:
    """Annotate a stream that has halted over loads in doubt; whether that was done. Another doubt is answered once more."""
    decided = world.decided() if isinstance(world, OverLoads) else None
    if decided is None or not isinstance(world, OverLoads) or any(not operator.ended for operator in world.operators):
        return False
    latest = world.journal.attempts[-1].number
    drivers = world.drivers.get(Epoch(latest), [])
    if not any(isinstance(driver.problem, LoadsInDoubt) for driver in drivers):
        return False
    seen = {one.answered_as: seen_by_a_person(world.loads, one) for one in decided.committables}
    found = {
        label: Answer.COMMITTED if state is LoadState.COMMITTED else Answer.ABORTED
        for label, state in seen.items()
        if state is not None
    }
    text = " ".join(f"{label}={answer}" for label, answer in found.items())
    if not found or (SETTLE_LOADS, text) in world.annotations:
        return False
    world.journal.strike(ANSWERED)
    world.simulation.tell(f"a person answers for loads in doubt: {text}")
    kept = tuple((name, value) for name, value in world.annotations if name != SETTLE_LOADS)
    world.annotations = (*kept, (SETTLE_LOADS, text))
    world.statuses.status = world.statuses.status.model_copy(update={"phase": Phase.PENDING})
    world.statuses.version += 1
    world.draining = False
    world.start_operator("operator of the answer")
    return True
