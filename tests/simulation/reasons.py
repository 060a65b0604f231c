"""Why: every ending, every error, every attempt and every verdict of a run must be explained by what struck it.

A rule that is missing is often hidden by the ones behind it: a batch that is never closed ends its driver, and the next attempt
rebuilds what was not broken. No record is lost by that, so counting records does not see it. This does. Each table names
the hazards of the world that can bring something about; what the code under test says of itself is no reason.
"""

from __future__ import annotations

from itertools import pairwise
from typing import assert_never

from exactlyonce.api.spec import Delivery
from exactlyonce.aws.errors import AwsError
from exactlyonce.connectors.files.spark_log import LogUnfit
from exactlyonce.connectors.files.tenancy import FilesLost
from exactlyonce.connectors.kinesis.reading import PositionExpired, RangeIncomplete
from exactlyonce.errors import SourceRefused
from exactlyonce.launch.last_message import Ending
from exactlyonce.ledger.rows import BatchRow, BatchStatus
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    FinishBatch,
    FinishCommit,
    FinishFirst,
    FirstStart,
    OffsetsReset,
    RebuildFromSink,
    RebuildReason,
    ReplanBatch,
    ReplayBatch,
    Resume,
    RewindToSink,
    SkipLanded,
    SourceReplaced,
    SourceTruncated,
    Verdict,
)
from exactlyonce_spark.connectors.delta.table import LedgerBehindTable
from exactlyonce_spark.connectors.kafka.sink_errors import TransactionGone
from exactlyonce_spark.latest_loads import LedgerBehindSink
from exactlyonce_spark.load_outcome import NotCommitted
from exactlyonce_spark.planned import LandingRefused, OriginReplaced
from exactlyonce_spark.source_check import RecordNotShown, RecordsLost, RecordsReplaced
from exactlyonce_spark.two_phase_finish import LoadsInDoubt, RowsNotThere
from exactlyonce_spark.two_phase_submit import RowsPartlyLoaded
from tests.simulation.adoption import ADOPTED
from tests.simulation.asked_resets import RESET
from tests.simulation.at_rest import STARTED_OVER
from tests.simulation.causes import CONTRADICTIONS, OTHER_OPERATOR, REBUILDS, SUCCESSOR
from tests.simulation.journal import Attempt
from tests.simulation.launcher import Driver
from tests.simulation.scheduler import NEVER
from tests.simulation.spark_errors import (
    BatchTooLarge,
    LogTaken,
    LogUnreadable,
    OffsetChanged,
    PartitionsDiffer,
)
from tests.simulation.state import StateMissing
from tests.simulation.two_phase_world import ANSWERED
from tests.simulation.world import SimulatedWorld


def unexplained(world: SimulatedWorld) -> list[str]:
    """Return what happened in a run that nothing explains."""
    return [*_endings(world), *_failed_passes(world), *_attempts(world), *_verdicts(world)]


def explains_halt(world: SimulatedWorld) -> bool:
    """Whether what has struck calls for the person whom the stream halts for."""
    latest = world.journal.attempts[-1] if world.journal.attempts else None
    refused = (StateMissing, LogUnfit, FilesLost, LedgerBehindTable, LedgerBehindSink)
    halting_errors = (*refused, LoadsInDoubt, RowsNotThere, RowsPartlyLoaded, *world.refused)
    if latest is not None and any(isinstance(driver.problem, halting_errors) for driver in _drivers_of(world, latest)):
        return True  # that its state was lost, or its ledger went back, is asked with the driver's ending
    failed = world.journal.failed_passes[-1:]
    if latest is not None and any(isinstance(it.problem, world.refused) and it.until >= latest.began for it in failed):
        return True  # a pass was refused; whether anything explains that is asked with the other passes
    halting = latest is not None and latest.decision is not None and latest.decision.halts
    return latest is not None and halting and _is_explained(world, latest)


def _endings(world: SimulatedWorld) -> list[str]:
    drivers = [(epoch, driver) for epoch, found in world.drivers.items() for driver in found]
    return [
        f"{driver.process.name} ended, and nothing explains it: {driver.problem!r}"
        for epoch, driver in drivers
        if driver.problem is not None
        and not _is_excused(world, driver.problem, _looked(world, driver, epoch), driver.ended_at, epoch)
    ] + [
        f"{driver.process.name} was drained, and nobody asked for that"
        for epoch, driver in drivers
        if _has_drained(driver) and not world.draining and not world.journal.has_struck(_REPLACE)
    ]


_REPLACE = frozenset({"topics changed", "commit changed", "suspend"})


def _has_drained(driver: Driver) -> bool:
    return driver.words is not None and driver.words.ending is Ending.DRAINED


def _is_excused(world: SimulatedWorld, problem: BaseException, since: int, until: int, epoch: int) -> bool:
    """Whether one of the hazards that can bring an error about had effect while the driver, or the pass, ran."""
    root = problem
    while (
        not isinstance(root, world.refused) and root.__cause__ is not None and not isinstance(root.__cause__, AwsError)
    ):  # what an AWS service answers
        root = root.__cause__
    if isinstance(root, LogTaken) and not world.stateful:
        # Only state ties a stream to a directory that may still be written; or a ledger that has forgotten the writer.
        kinds = frozenset({"restore"})
        return world.journal.has_struck(kinds, 0, until)
    kinds = _hazards_behind(world, root)
    if OTHER_OPERATOR in kinds and world.scenario.operators > 1:
        return True
    if isinstance(root, LogTaken | LandingRefused) and _ran_beside_a_forgotten_one(world, epoch, since, until):
        return True
    if SUCCESSOR in kinds and any(other.number > epoch and other.began <= until for other in world.journal.attempts):
        return True
    lasting = (
        *(BatchTooLarge, LogUnfit, FilesLost, LedgerBehindTable, LedgerBehindSink),
        *(LoadsInDoubt, RowsNotThere, RowsPartlyLoaded, NotCommitted, TransactionGone),
    )
    if isinstance(root, (*lasting, *world.refused, *_LATE)):
        since = (
            0  # it lasts; or whoever was forgotten runs on, and a database that goes back asks for what retention took
        )
    if isinstance(root, PartitionsDiffer) and world.journal.has_struck({"restore"}, 0, until):
        kinds |= {"topics changed"}  # the ledger may name a generation that was made for other topics
    if isinstance(root, LogUnreadable | StateMissing) and world.journal.has_struck({"restore"}, 0, until):
        since = 0  # the ledger may name a generation to which anything has happened
        if isinstance(root, StateMissing):
            kinds |= {"restore"}  # it may have forgotten that the query keeps state, and so seeded a generation without
    return world.journal.has_struck(kinds, since, until)


def _ran_beside_a_forgotten_one(world: SimulatedWorld, epoch: int, since: int, until: int) -> bool:
    """Whether a driver of an attempt that the ledger has forgotten ran meanwhile: it may have written where this one reads."""
    others = (driver for number, found in world.drivers.items() if number != epoch for driver in found)
    beside = any(driver.began <= until and driver.ended_at >= since for driver in others)
    return beside and world.journal.has_struck({"restore"}, 0, until)


def _hazards_behind(world: SimulatedWorld, root: BaseException) -> frozenset[str]:
    """What can bring such an error about."""
    kinds = next((world.errors[kind] for kind in type(root).__mro__ if kind in world.errors), frozenset())
    if isinstance(root, LogUnreadable | StateMissing) and world.collects_generations:
        return kinds | {SUCCESSOR}  # it removes the generation of a driver that was given up and still runs
    return kinds


_LATE = (
    *(LogTaken, RecordsLost, RecordsReplaced, RecordNotShown, OriginReplaced, OffsetChanged, PartitionsDiffer),
    *(PositionExpired, RangeIncomplete, SourceRefused),
)
"""What ends somebody long after it was struck: whoever comes to what retention took, or to what others wrote."""


def _looked(world: SimulatedWorld, driver: Driver, epoch: int) -> int:
    """When the operator looked that started this driver: what was broken since, it could not see."""
    attempt = _attempt_of(world, driver, epoch)
    return 0 if attempt is None else attempt.looked


def _failed_passes(world: SimulatedWorld) -> list[str]:
    return [
        f"a pass of {failed.operator.name} ended with {failed.problem!r}, and nothing explains it"
        for failed in world.journal.failed_passes
        if not _is_excused(world, failed.problem, failed.since, failed.until, NEVER)
    ]


def _attempts(world: SimulatedWorld) -> list[str]:
    attempts = world.journal.attempts
    return [
        f"attempt {later.number} was made, and nothing has ended attempt {earlier.number}"
        for earlier, later in pairwise(attempts)
        if not _is_over(world, earlier, later)
    ]


def _is_over(world: SimulatedWorld, earlier: Attempt, later: Attempt) -> bool:
    """Whether an attempt had come to its end before the next one was made; how its driver ended is asked elsewhere."""
    journal = world.journal
    if world.scenario.operators > 1 or journal.has_struck({"lose status"}, earlier.began, later.began):
        return True
    drivers = _drivers_of(world, earlier)
    if drivers:
        lost = any(driver.given_up for driver in drivers)
        return lost or all(driver.ended_at <= later.began for driver in drivers)
    if earlier.decision is None and _found_nothing_to_finish(world, earlier, later):
        return True
    if journal.has_struck({"started over", ADOPTED, RESET, ANSWERED, "mended"}, earlier.looked, later.began):
        return True
    if journal.has_struck({"kill operator"}, earlier.looked, later.began, earlier.operator):
        return True
    return any(failed.since <= earlier.began <= failed.until for failed in journal.failed_passes)


def _found_nothing_to_finish(world: SimulatedWorld, earlier: Attempt, later: Attempt) -> bool:
    """Whether what an attempt was to finish may have gone since its first look: a driver still lived, or the ledger went."""
    return world.journal.has_struck({"restore", "lose ledger", "drop ledger"}, earlier.looked, later.began) or any(
        driver.began < earlier.began and earlier.looked <= driver.ended_at <= later.began
        for found in world.drivers.values()
        for driver in found
    )


def _drivers_of(world: SimulatedWorld, attempt: Attempt) -> list[Driver]:
    """The drivers that were started for an attempt."""
    found = world.drivers.get(Epoch(attempt.number), [])
    return [driver for driver in found if _attempt_of(world, driver, attempt.number) is attempt]


def _attempt_of(world: SimulatedWorld, driver: Driver, epoch: int) -> Attempt | None:
    """The attempt that a driver was started for.

    Where status and database have both forgotten an attempt, its number is taken again, perhaps by another operator and
    before the first one has started its driver.
    """
    own = [
        attempt
        for attempt in world.journal.attempts
        if attempt.number == epoch and attempt.operator is driver.starter and attempt.began <= driver.began
    ]
    return max(own, key=lambda attempt: attempt.began, default=None)


def _verdicts(world: SimulatedWorld) -> list[str]:
    return [
        f"attempt {attempt.number} decided {attempt.decision.verdict!r}, and nothing explains it"
        for attempt in world.journal.attempts
        if attempt.decision is not None and not _is_overtaken(world, attempt) and not _is_explained(world, attempt)
    ]


def _is_overtaken(world: SimulatedWorld, attempt: Attempt) -> bool:
    """Whether another operator had continued before this one decided: what it has seen is old, and it may do nothing."""
    assert attempt.decided is not None
    return any(other.number > attempt.number and other.began <= attempt.decided for other in world.journal.attempts)


def _is_explained(world: SimulatedWorld, attempt: Attempt) -> bool:  # noqa: C901 - a case for each verdict
    assert attempt.decision is not None
    assert attempt.seen is not None
    verdict: Verdict = attempt.decision.verdict
    journal, until = world.journal, attempt.decided
    before = _latest_that_ran(world, attempt)
    match verdict:
        case FirstStart():
            return before is None or journal.has_struck({"restore", "started over", ADOPTED}, before.looked, until)
        case FinishFirst():
            return _is_left_unfinished(world, attempt)
        case Resume() | ReplayBatch() | SkipLanded() | FinishBatch() | FinishCommit():
            return _is_told_that_it_went_back(world, attempt) and _may_be_unfinished(world, verdict, attempt)
        case ReplanBatch():
            return journal.has_struck({"limit changed", "too large"}, 0, until)
        case RebuildFromSink(reason=RebuildReason.PREDECESSOR_MAY_LIVE):
            return attempt.writer_lived
        case RebuildFromSink(reason=why):
            return journal.has_struck(REBUILDS.get(why, frozenset()), _since(world, before), until)
        case RewindToSink():
            # What is left of a seed whose first files were lost looks as if it had run.
            return journal.has_struck({"restore", "lose checkpoint"}, _since(world, before), until)
        case OffsetsReset() | SourceTruncated():
            # A child whose parents are listed no more may have lost its first records.
            called_for = {RESET, ANSWERED} if isinstance(verdict, OffsetsReset) else {"retention", "unlisted"}
            return journal.has_struck(called_for, 0, until)
        case SourceReplaced():
            return _is_replaced(world)
        case Contradiction(reason=why):
            return journal.has_struck(_hazards_for_a_person(world, why), 0, until)
        case _:
            assert_never(verdict)


def _hazards_for_a_person(world: SimulatedWorld, why: ContradictionReason) -> frozenset[str]:
    """What can have struck where a person is called for such a reason."""
    known = CONTRADICTIONS.get(why, frozenset())
    if why is ContradictionReason.LOCATION_TAKEN and world.journal.has_struck({STARTED_OVER}):
        return known | {"restore"}  # the ledger is of the life before, and the location of the new one
    if why is ContradictionReason.STATE_WOULD_BE_LOST and world.collects_generations:
        return known | {
            "restore"
        }  # a database that went back twice may name a generation that drivers have removed since (ADR 43)
    return known


def _is_replaced(world: SimulatedWorld) -> bool:
    """Whether the source lacks a record that landed, by the world's own log; or a topic has another id."""
    if "re-create" in world.struck and world.topic.has_ids:
        return True
    if {"restore", "failover"} & world.struck and {"truncate", "re-create"} & world.struck:
        return True  # the records that had landed when it halted may have gone from the table since
    if world.is_unfinished() and {"truncate", "re-create"} & world.struck:
        return True  # the records of a decided batch may be in no table yet
    if Delivery.AT_MOST_ONCE in world.deliveries and {"truncate", "re-create"} & world.struck:
        return True  # a batch is taken, with the fingerprint of its last record, before its rows are anywhere
    passed_over = has_quarantined(world) or (world.scenario.bisect and world.poison)
    if passed_over and {"truncate", "re-create"} & world.struck:
        return True  # what was passed over is in no table, and its last record is known all the same
    there = {world.topic.record(key, offset) for key, end in world.topic.ends.items() for offset in range(end)}
    # A dead letter was read like any record, has no row, and its bytes are known all the same.
    landed = [*world.database.tables.target, *(world.life_before or ()), *world.records_kept(), *world.kept_before]
    return any(record not in there for record in landed)


def has_quarantined(world: SimulatedWorld) -> bool:
    """Whether the stream has continued after a batch."""
    rows = world.database.tables.rows.values()
    return any(isinstance(row, BatchRow) and row.status is BatchStatus.QUARANTINED for row in rows)


def _latest_that_ran(world: SimulatedWorld, attempt: Attempt) -> Attempt | None:
    """The latest attempt before this one whose driver had been started when this one was decided.

    A driver that is started after that runs only where a database that went back has forgotten the newer epoch.
    """
    decided = attempt.decided
    assert decided is not None
    earlier = [
        other
        for other in world.journal.attempts
        if other.began < attempt.began and other.decision is not None and not other.decision.finishes
    ]
    ran = (other for other in reversed(earlier) if any(driver.began <= decided for driver in _drivers_of(world, other)))
    return next(ran, None)


def _since(world: SimulatedWorld, before: Attempt | None) -> int:
    """From when on a fault counts: what was broken before the latest look was seen by that. A restored database may name an
    older generation, to which anything may have happened.
    """
    if before is None or world.journal.has_struck({"restore"}):
        return 0
    return before.looked


def _may_be_unfinished(world: SimulatedWorld, verdict: Verdict, attempt: Attempt) -> bool:
    """A batch is left unfinished by a driver that ended badly, or in its seed, which nobody has run yet."""
    assert attempt.seen is not None
    assert attempt.seen.ledger is not None
    writer = attempt.seen.ledger.stream.writer
    if isinstance(verdict, Resume) or writer is None:
        return True
    drivers = world.drivers[writer]
    if isinstance(verdict, FinishBatch) and world.journal.has_struck({"foreign writes"}, 0, attempt.decided):
        return True  # a plan that another wrote may end where the sink stands in some partition
    if isinstance(verdict, ReplayBatch) and any(_has_drained(driver) for driver in drivers):
        return True  # planned, and then asked to end before it was begun
    if isinstance(verdict, FinishCommit) and world.journal.has_struck({"failover"}, 0, attempt.decided):
        return True  # that a batch has landed is what a failover loses last
    return not any(_has_drained(driver) for driver in drivers)


def _is_left_unfinished(world: SimulatedWorld, attempt: Attempt) -> bool:
    """Whether a driver of an earlier attempt ended otherwise than by its own word, so that it may have left something."""
    earlier = (driver for epoch, found in world.drivers.items() if epoch < attempt.number for driver in found)
    return any(not _has_drained(driver) for driver in earlier)


def _is_told_that_it_went_back(world: SimulatedWorld, attempt: Attempt) -> bool:
    """Spark commits what has landed. Where its logs hold a later batch than the ledger, that was restored, and a person is
    told so: the records land again.
    """
    seen = attempt.seen
    assert seen is not None
    if seen.ledger is None or seen.ledger.stream.landed_batch is None:
        return True
    return attempt.highest_commit <= seen.ledger.stream.landed_batch
