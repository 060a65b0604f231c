"""What a stream has given up must be what it may give up: records that are gone, or that somebody asked to leave."""

from __future__ import annotations

from collections.abc import Hashable

from exactlyonce.api.spec import Delivery
from exactlyonce.launch.last_message import Ending
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from tests.simulation.claims import (
    NOT_LANDED,
    failures_with,
    first_positions,
    is_halted,
    lost_rows,
    records_of,
    records_quarantined,
    taken_rows,
)
from tests.simulation.launcher import Driver
from tests.simulation.poison import holds, wrong_with_bisected
from tests.simulation.resets import wrong_with_kept
from tests.simulation.resource import STREAM_ID
from tests.simulation.violations import Violation
from tests.simulation.world import SimulatedWorld


def records_given_up(world: SimulatedWorld) -> set[Hashable]:
    """Records that the stream has not read: ranges that it says it lost, and what was before it began in a partition."""
    lost = {record for row in lost_rows(world) for record in records_of(world, row)} | records_quarantined(world)
    lost |= world.records_kept()
    if is_halted(world):
        taken = [(key, span) for row in taken_rows(world) for key, span in row.ranges.items()]
        lost |= {record for key, span in taken for record in world.records_in(key, span)}
    start = first_positions(world)
    before = {world.topic.record(key, offset) for key, until in start.items() for offset in range(until)}
    return (
        lost
        | (before - world.asked.again)
        | {record for record in world.never_asked() if not world.database.tables.target[record]}
    )


def check_given_up(world: SimulatedWorld, given_up: set[Hashable]) -> None:
    """Nothing is given up but what retention took; with AtMostOnce also one batch each time that a driver ended badly."""
    _check_quarantined(world)
    gone = (
        world.taken
        | set(world.life_before or ())
        | world.skipped_by_start()
        | records_quarantined(world)
        | world.asked.skipped
        | world.records_kept()
    )
    certain = {record for record in given_up - gone if Delivery.AT_MOST_ONCE not in world.deliveries_of(record)}
    there = {record for record in certain if not stood_elsewhere(world, record)}
    if there:
        raise Violation(f"given up, and it was there to be read: {sorted(there, key=str)}")
    if Delivery.AT_MOST_ONCE not in world.deliveries:
        return
    # A batch from which retention took records while it was read is told as lost in whole: it may not be read again.
    by_retention = {row.batch for row in lost_rows(world) if records_of(world, row) & world.taken}
    by_crash = [row for row in lost_rows(world) if row.batch not in by_retention]
    ended_badly = [drivers for drivers in world.drivers.values() if not any(_drained(driver) for driver in drivers)]
    restored = sum(
        fault.kind == "restore" for fault in world.journal.faults
    )  # each may take how the latest batch ended
    if len({row.batch for row in by_crash}) > len(ended_badly) + restored:
        raise Violation(
            f"{by_crash} are lost, {len(ended_badly)} drivers ended badly and the database was set back {restored} times"
        )
    if any(row.until_offset - row.from_offset > world.batch_records for row in by_crash):
        raise Violation(f"more than a batch of {world.batch_records} per partition is given up: {by_crash}")


def _check_quarantined(world: SimulatedWorld) -> None:
    """Only what the resource asks for is quarantined: a batch that reads the poison record, or in which drivers died."""
    if wrong := wrong_with_kept(world):
        raise Violation(wrong)
    rows = [
        row
        for status in (*NOT_LANDED, FailureStatus.REPLAYED)
        for row in failures_with(world, status)
        if not world.is_doubtful(row) and not records_of(world, row) <= world.asked.kept | world.asked.taken_up
    ]
    if rows and not world.scenario.quarantine:
        raise Violation(f"quarantined, and nobody asked for that: {rows}")
    _check_none_landed(world)
    if world.scenario.bisect:
        if wrong := wrong_with_bisected(world, rows):
            raise Violation(wrong)
        return
    if world.journal.has_struck({"kill driver", "strike at commit", "freeze driver", "lose driver", "too large"}):
        return
    for row in rows:
        batch = world.database.tables.rows["batch", STREAM_ID, row.batch]
        if not any(holds(batch.ranges.get(partition), offset) for partition, offset in world.poison):
            raise Violation(f"batch {row.batch} is quarantined and has no record that fails it: {batch}")


def _check_none_landed(world: SimulatedWorld) -> None:
    """What is in quarantine may be replayed: no record of it has landed, in whatever life of the stream it was quarantined."""
    rows = [row for row in world.database.tables.rows.values() if isinstance(row, FailureRow)]
    for row in rows:
        # What a replay has decided may be there, and nobody takes it before that is known.
        is_held = row.status in NOT_LANDED and not row.is_decided and not world.is_doubtful(row)
        records = records_of(world, row) if is_held else ()
        landed = {
            record for record in records
            if world.database.tables.target[record] and world.deliveries_of(record) == {Delivery.EXACTLY_ONCE}
        }  # fmt: skip
        if landed:
            raise Violation(f"in quarantine, from where it may be replayed, and landed: {sorted(landed, key=str)}")


def stood_elsewhere(world: SimulatedWorld, record: Hashable) -> bool:
    """Whether retention had taken another record, which stood where this one stands since the topic was recreated."""
    assert isinstance(record, tuple)
    _, partition, offset = record
    taken = {other[1:] for other in world.taken if isinstance(other, tuple)}
    return (partition, offset) in taken


def _drained(driver: Driver) -> bool:
    return driver.words is not None and driver.words.ending is Ending.DRAINED
