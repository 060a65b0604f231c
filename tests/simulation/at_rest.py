"""A stream that rests has left nothing: what is decided is committed by then, and what has landed is shown.

A sink forgets what is prepared, and a person who sees a stream at rest may empty its table and have it start over.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from exactlyonce.api.resource import FRESH
from exactlyonce.api.status import Phase
from exactlyonce.ledger.rows import FailureRow, StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import Decision, FirstStart, kind_of, reason_of
from exactlyonce_spark.latest_loads import LedgerBehindSink
from exactlyonce_spark.two_phase_finish import LoadsInDoubt, RowsNotThere
from exactlyonce_spark.two_phase_submit import RowsPartlyLoaded
from tests.simulation.resource import STREAM_ID
from tests.simulation.server import Tables

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld

STARTED_OVER = "started over"
FRESH_AT_REST, FRESH_AT_ANY_TIME, HOURS_PASS = "fresh at rest", "fresh at any time", "hours pass"
HAZARDS_AT_REST = (FRESH_AT_REST, FRESH_AT_ANY_TIME, HOURS_PASS)

_FOR_A_PERSON = (LedgerBehindSink, LoadsInDoubt, RowsNotThere, RowsPartlyLoaded)
_NOT_BELIEVED = frozenset({"LedgerBehindSink", "LedgerInconsistent", "LocationTaken"})
_WHOSE_SOURCE_IS_GONE = frozenset({"SourceTruncated", "SourceReplaced"})


def note_rest(world: SimulatedWorld, phase: Phase) -> None:
    """Note what is wrong with a stream that is written to rest now; a driver that lives may be about to leave something."""
    lives = any(not driver.process.ended for found in world.drivers.values() for driver in found)
    if phase not in (Phase.HALTED, Phase.SUSPENDED) or lives or _could_not_look(world):
        return
    if world.leaves_a_batch_decided() and not _a_person_is_needed(world, phase):
        world.wrong.append(f"the stream is {phase}, and a batch is decided: its loads are lost by waiting")
    verdict = world.journal.attempts[-1].decision if world.journal.attempts else None
    halts_for_the_source = verdict is not None and kind_of(verdict.verdict) in _WHOSE_SOURCE_IS_GONE
    if not world.scenario.manifest or (phase is Phase.HALTED and not halts_for_the_source):
        return
    if world.rows_of_replays_are_shown_by_batches:
        return
    unseen = Counter(world.database.tables.target) - world.output.visible()
    if unseen and not world.journal.has_struck({"restore"}):
        world.wrong.append(f"the stream is {phase}, and readers are not shown what has landed: {unseen}")


def _could_not_look(world: SimulatedWorld) -> bool:
    """Whether a pass that has just ended, or this one, had no answer: it is asked again, as nobody waits for that here."""
    operator = world.simulation.running
    began = world.pass_began.get(operator, 0) if operator is not None else 0
    return any(failed.until >= began for failed in world.journal.failed_passes)


def _a_person_is_needed(world: SimulatedWorld, phase: Phase) -> bool:
    if phase is Phase.SUSPENDED or not world.journal.attempts:
        return False
    latest = world.journal.attempts[-1]
    drivers = world.drivers.get(Epoch(latest.number), [])
    if any(isinstance(driver.problem, (*_FOR_A_PERSON, *world.refused)) for driver in drivers):
        return True
    return latest.decision is not None and reason_of(latest.decision.verdict) in _NOT_BELIEVED


def may_rest_long(world: SimulatedWorld) -> bool:
    """Whether something is to happen to this stream while it rests."""
    return bool({FRESH_AT_REST, HOURS_PASS} & world.scenario.hazards)


def rests_long(world: SimulatedWorld) -> None:
    """Hours pass, and the sink aborts what is prepared by then; or a person empties the table and has it start over."""
    if world.strikes(HOURS_PASS, 0.7):
        world.simulation.tell("hours pass")
        world.time_out()
    if world.life_before is None and world.strikes(FRESH_AT_REST, 0.7):
        ask_for_a_new_start(world)
        set_aside(world)


def may_ask_at_any_time(world: SimulatedWorld) -> None:
    """A person asks for a new start of a stream that may be doing anything, and leaves its table as it is."""
    if world.life_before is None and not world.annotations and world.strikes(FRESH_AT_ANY_TIME, 0.2):
        ask_for_a_new_start(world)


def ask_for_a_new_start(world: SimulatedWorld) -> None:
    """Annotate the stream, if it has a row."""
    row = world.database.tables.rows.get(("stream", STREAM_ID))
    if not isinstance(row, StreamRow) or row.landed_batch is None:
        return
    annotate_a_new_start(world, row.token)
    world.statuses.version += 1  # the resource's version


def annotate_a_new_start(world: SimulatedWorld, token: str) -> None:
    """A person asks for a new start of the stream with this token."""
    world.journal.strike(STARTED_OVER)
    world.simulation.tell("a person asks for a new start")
    world.annotations = ((FRESH, token),)


def note_new_start(world: SimulatedWorld, seen: Observation, decision: Decision) -> None:
    """The rows of the life before are set aside as the new one begins, where the person has not done that."""
    asked = dict(world.annotations).get(FRESH)
    is_new = isinstance(decision.verdict, FirstStart) and asked is not None and seen.request.fresh == asked
    if is_new and world.life_before is None and seen.ledger is not None and seen.ledger.stream.token == asked:
        set_aside(world)


def set_aside(world: SimulatedWorld) -> None:
    """What is in the table is of the stream's life before; the new one is counted without it."""
    world.life_before = Counter(world.database.tables.target)
    rows = world.database.tables.rows.values()
    world.failures_before = {id(row): row for row in rows if isinstance(row, FailureRow)}
    world.database.tables = Tables(world.database.tables.rows)
    world.database.version += 1
    world.edited.clear()
    world.begins_again()
