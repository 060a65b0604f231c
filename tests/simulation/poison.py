"""Records that fail whatever reads them, and how a driver of the model finds those that fail by themselves."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING

from exactlyonce.launch.port import Quarantine
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import BatchStatus, FailureRow
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges
from exactlyonce_spark.bisection import Bisection, rolled_back, taking_nothing, trying
from exactlyonce_spark.left_out import FailingRecords
from exactlyonce_spark.target import ManifestTarget, Target, TwoPhaseTarget
from tests.simulation.log_target import LogTarget
from tests.simulation.resource import MOST_FAILURES, STREAM_ID
from tests.simulation.spark_errors import PoisonRecord

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld

LASTING = 1 << 30
"""So often a record fails that nobody mends."""


def is_left_out(key: Partition, offset: int, left_out: Collection[FailingRecords]) -> bool:
    """Whether a query does not read a record."""
    return any(
        one.partition == key and one.offsets.from_offset <= offset < one.offsets.until_offset for one in left_out
    )


def read(
    world: SimulatedWorld, key: Partition, offsets: OffsetRange, left_out: Collection[FailingRecords] = ()
) -> list[Hashable]:
    """Read a range but for what is left out; a record that is poison fails as often as it was drawn.

    One that `fails_in_company` does so only where more than itself is read of its partition.
    """
    failing = [
        offset for partition, offset in sorted(world.poison)
        if partition == key and offsets.from_offset <= offset < offsets.until_offset
        and not is_left_out(key, offset, left_out) and _is_poison(world, key, offset)
    ]  # fmt: skip
    if world.poison_left and failing and not (world.fails_in_company and offsets.record_count == 1):
        if world.poison_left < LASTING:
            world.poison_left -= 1
        world.journal.strike("poison")
        raise PoisonRecord(f"{key} at {failing[0]} fails its batch")
    return [record for record in world.topic.read(key, offsets) if not is_left_out(key, record[2], left_out)]


def _is_poison(world: SimulatedWorld, key: Partition, offset: int) -> bool:
    """Whether the record that stands there is the one that was drawn: where a log is cut, others may take its place."""
    return not world.scenario.bisect or world.topic.record(key, offset) in world.poison_records


def failing_records(
    world: SimulatedWorld,
    ledger: Ledger,
    permit: Permit,
    target: Target | ManifestTarget | TwoPhaseTarget,
    order: Quarantine | None,
    is_to_end: bool,
) -> tuple[FailingRecords, ...]:
    """Return the records that a driver's query leaves out."""

    def rows(ranges: Ranges) -> list[Hashable]:
        found: list[Hashable] = []
        for key, offsets in ranges.items():
            world.simulation.step(f"try {key} {offsets}")
            found += read(world, key, offsets)
        return found

    take = taking_nothing
    if not isinstance(target, ManifestTarget | TwoPhaseTarget | LogTarget):
        take = rolled_back(ledger, permit, target)  # type: ignore[assignment]  # what it returns is of no account
    search = Bisection(ledger, permit, world.source_check(), trying(rows, take), lambda: is_to_end)
    found = search.find(order, world.delivery_of[world.simulation.running])  # type: ignore[index]  # a driver runs
    if order is not None and order.bisect and not found:
        world.searches_in_vain += 1
    return found


def holds(span: OffsetRange | None, offset: int) -> bool:
    """Whether a range holds an offset."""
    return span is not None and span.from_offset <= offset < span.until_offset


def wrong_with_bisected(world: SimulatedWorld, rows: Sequence[FailureRow]) -> str | None:
    """Return what is in quarantine that does not fail by itself; but all of a batch may be, if that was of no use."""
    for row in rows:
        kept = [world.database.tables.rows.get((kind, STREAM_ID, row.batch)) for kind in ("batch", "expired batch")]
        whole = any(batch is not None and batch.status is BatchStatus.QUARANTINED for batch in kept)
        if whole and _may_be_whole(world):
            continue
        good = [at for at in range(row.from_offset, row.until_offset) if (row.partition, at) not in world.poison]
        if row.fingerprint is not None and not good:  # the topic's own word for which record stood there
            told = {f"{life} {offset}" for life, _, offset in world.poison_records}
            good = [] if row.fingerprint.digest in told else [row.until_offset - 1]
        if good or world.fails_in_company:
            return f"in quarantine, and nothing is wrong with {row.partition} {good}: {row}"
    return None


def _may_be_whole(world: SimulatedWorld) -> bool:
    """Whether a batch can have failed as often again as the resource allows, once its records were looked for."""
    drivers = [driver for found in world.drivers.values() for driver in found]
    died = sum(driver.words is None for driver in drivers)
    # A database that went back knows no batch that failed, so nothing is searched.
    in_vain = world.searches_in_vain >= MOST_FAILURES and world.journal.has_struck({"restore", "failover"})
    return died >= MOST_FAILURES or in_vain or world.fails_in_company or world.journal.has_struck({"too large"})
