"""What a stream claims of itself, read from its ledger and its status: claims that the oracle never believes."""

from __future__ import annotations

from collections.abc import Hashable

from exactlyonce.api.status import Phase
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureRow, FailureStatus
from exactlyonce.positions.ranges import OffsetRange, Partition
from tests.simulation.new_start import first_batch
from tests.simulation.world import SimulatedWorld

NOT_LANDED = (*HELD, FailureStatus.GIVEN_UP)
"""Of ranges that the stream has continued after and that no replay has landed; a person may take back what was given up."""


def is_halted(world: SimulatedWorld) -> bool:
    """Whether the stream has halted."""
    return world.statuses.status.phase is Phase.HALTED


def lost_rows(world: SimulatedWorld) -> list[FailureRow]:
    """What it says that it has lost."""
    return failures_with(world, FailureStatus.LOST)


def failures_with(world: SimulatedWorld, status: FailureStatus) -> list[FailureRow]:
    """The failures of this life of the stream that have this status."""
    rows = [row for row in world.database.tables.rows.values() if isinstance(row, FailureRow)]
    of_this_life = [row for row in rows if row.batch >= first_batch(world) and id(row) not in world.failures_before]
    return [row for row in of_this_life if row.status is status]


def taken_rows(world: SimulatedWorld) -> list[BatchRow]:
    """Batches that AtMostOnce took and of which nothing says how they ended; the next attempt records what they lost."""
    rows = [row for row in world.database.tables.rows.values() if isinstance(row, BatchRow)]
    return [row for row in rows if row.status is BatchStatus.TAKEN and row.batch >= first_batch(world)]


def records_of(world: SimulatedWorld, row: FailureRow) -> set[Hashable]:
    """The records of a failed range."""
    return world.records_in(row.partition, OffsetRange(row.from_offset, row.until_offset))


def first_positions(world: SimulatedWorld) -> dict[Partition, int]:
    """Where the stream started: the first seed."""
    rows = [row for row in world.database.tables.rows.values() if isinstance(row, BatchRow)]
    rows = [row for row in rows if row.batch >= first_batch(world)]
    first = min(rows, key=lambda row: row.batch, default=None)
    starts = {} if first is None else first.ranges.starts
    return {key: world.records_before(key, start) for key, start in starts.items()}


def records_passed(world: SimulatedWorld) -> dict[Partition, int]:
    """How many records of each partition the stream says that it has passed."""
    return {key: world.records_before(key, position) for key, position in standing(world).items()}


def standing(world: SimulatedWorld) -> dict[Partition, int]:
    """Where the stream says that it stands, also in partitions that it no longer reads."""
    rows = world.database.tables.rows.items()
    stands = {key[2]: value[0] for key, value in rows if key[0] in ("position", "retired")}
    if not world.edited:
        return stands
    return {key: max(stands.get(key, 0), world.edited.get(key, 0)) for key in {**stands, **world.edited}}


def records_quarantined(world: SimulatedWorld) -> set[Hashable]:
    """Records that the stream has continued after, and keeps among its failures; not those that a replay has landed."""
    return {
        record for status in NOT_LANDED for row in failures_with(world, status) for record in records_of(world, row)
    }


def records_doubtful(world: SimulatedWorld) -> set[Hashable]:
    """Records in quarantine of which the stream says that nobody knows what became of them."""
    rows = [row for status in NOT_LANDED for row in failures_with(world, status) if world.is_doubtful(row)]
    return {record for row in rows for record in records_of(world, row)}
