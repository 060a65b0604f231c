"""What happened to a stream, told from two statuses that follow each other. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from exactlyonce.api.conditions import standing_of
from exactlyonce.api.status import Phase, StreamStatus


@dataclass(frozen=True, slots=True)
class Happened:
    """What one write of a status says; None and False where nothing of the kind happened.

    `attempt` is one that was begun, `verdict` the kind of one that was made, `ending` the reason for which a driver ended,
    `halt` the reason for which the stream stopped. `runs`: a driver has come to run. `first_batch_at` is when the latest
    batch landed, at the first sight of one by this driver.
    """

    attempt: int | None = None
    verdict: str | None = None
    ending: str | None = None
    halt: str | None = None
    runs: bool = False
    first_batch_at: datetime | None = None


def happened_between(before: StreamStatus, after: StreamStatus) -> Happened:
    """Return what a write of `after` over `before` says."""
    verdict, driver = after.verdict, after.driver
    ended_before = None if before.driver is None else (before.driver.attempt, before.driver.ended)
    ended = None if driver is None or driver.ended is None else (driver.attempt, driver.ended)
    return Happened(
        attempt=after.attempt if after.attempt > before.attempt else None,
        verdict=verdict.kind if verdict is not None and verdict != before.verdict else None,
        ending=ended[1] if ended is not None and ended != ended_before else None,
        halt=standing_of(after).reason if after.phase is Phase.HALTED is not before.phase else None,
        runs=after.phase is Phase.RUNNING is not before.phase,
        first_batch_at=_first_batch_at(before, after),
    )


def _first_batch_at(before: StreamStatus, after: StreamStatus) -> datetime | None:
    if after.progress is None or not _has_landed(after) or (_has_landed(before) and before.attempt == after.attempt):
        return None
    return after.progress.landed_at


def _has_landed(status: StreamStatus) -> bool:
    """Whether the driver of the status has landed a batch."""
    driver, progress = status.current_driver, status.progress
    if driver is None or progress is None or progress.batch is None:
        return False
    return progress.batch > (-1 if driver.landed_at_start is None else driver.landed_at_start)
