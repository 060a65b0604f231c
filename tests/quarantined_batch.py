"""A stream into a sink of two phases, in memory, whose first batch is in quarantine, for replays of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from exactlyonce.ledger.fence import fence
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from tests.ledgers import IDS, P0, P1, STREAM
from tests.two_phase_stream import World

ENDS = {P0: 5, P1: 3}


@dataclass(frozen=True)
class Reader:
    """The records of a world, as a replay reads them; none is malformed."""

    world: World

    def rows(self, ranges: Ranges) -> Sequence[Any]:
        return self.world.rows(ranges)

    def malformed(self, ranges: Ranges) -> tuple[()]:
        return ()


def pass_over_first_batch(world: World) -> None:
    """Let the stream continue after all records of its first batch, which are in quarantine."""
    with world.ledger.transaction() as transaction:
        life = fence(transaction, world.permit, Lock.UPDATE).life
        transaction.advance_positions(STREAM, Ranges({key: OffsetRange(0, end) for key, end in ENDS.items()}), IDS)
        rows = tuple(
            FailureRow(
                BatchNumber(1), key, 0, end, FailureStatus.QUARANTINED, "b", "fails", origin_id=IDS["orders"], life=life
            )
            for key, end in ENDS.items()
        )
        transaction.write_failures(STREAM, rows)


def with_status(world: World, status: FailureStatus) -> tuple[FailureRow, ...]:
    """Return the failed ranges that have a status."""
    with world.ledger.transaction() as transaction:
        return transaction.read_failures(STREAM, status)


def held(world: World) -> list[FailureRow]:
    """Return what is in quarantine, and what a replay has taken from there."""
    return [*with_status(world, FailureStatus.QUARANTINED), *with_status(world, FailureStatus.REPLAYING)]
