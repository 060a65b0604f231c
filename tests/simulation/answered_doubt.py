"""A person looks for the rows of loads that the sink has forgotten, and answers for each of them."""

from __future__ import annotations

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.ledger.decided import Answer, DecidedBatch
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.target import LoadState
from exactlyonce_spark.two_phase_finish import LoadsInDoubt
from exactlyonce_spark.two_phase_submit import RowsPartlyLoaded
from tests.simulation.kafka_world import KafkaWorld
from tests.simulation.staged_world import OverStagedLoads
from tests.simulation.two_phase_world import OverLoads, annotate_answer
from tests.simulation.world import SimulatedWorld


def answers(world: SimulatedWorld) -> bool:
    """Annotate a stream that has halted over loads in doubt; whether that was done. Another doubt is answered once more."""
    if isinstance(world, KafkaWorld) and all(it.ended for it in world.operators) and world.answers_for_found():
        return True
    decided = world.decided() if isinstance(world, OverLoads) else None
    if decided is None or not isinstance(world, OverLoads) or any(not operator.ended for operator in world.operators):
        return False
    latest = world.journal.attempts[-1].number
    drivers = world.drivers.get(Epoch(latest), [])
    if not any(isinstance(driver.problem, LoadsInDoubt | RowsPartlyLoaded) for driver in drivers):
        return False
    is_part = any(isinstance(driver.problem, RowsPartlyLoaded) for driver in drivers)
    found = _found(world, decided) if not is_part else {}
    found |= _mended(world, decided, is_known=is_part)
    text = " ".join(f"{label}={answer}" for label, answer in found.items())
    if not found or (SETTLE_LOADS, text) in world.annotations:
        return False
    annotate_answer(world, SETTLE_LOADS, text, "a person answers for loads in doubt")
    return True


def _found(world: OverLoads, decided: DecidedBatch) -> dict[str, Answer]:
    """Return what is there of loads that are there as a whole, or not at all."""
    seen = {one.answered_as: world.what_became_of(one) for one in decided.committables}
    return {
        label: Answer.COMMITTED if state is LoadState.COMMITTED else Answer.ABORTED
        for label, state in seen.items()
        if state is not None
    }


def _mended(world: OverLoads, decided: DecidedBatch, *, is_known: bool) -> dict[str, Answer]:
    """Make each load whole that is there in part, and return what is answered: `is_known` where the sink says that it is."""
    if not isinstance(world, OverStagedLoads):
        return {}
    mended: dict[str, Answer] = {}
    for one in decided.committables:
        if one.label in world.files.lacking and one.label in world.files.finished_labels:
            there = (Answer.COMPLETED, Answer.COMMITTED)
            gone = (Answer.REMOVED, Answer.ABORTED)
            mended[one.label] = (there if world.mend(one.label) else gone)[0 if is_known else 1]
    return mended
