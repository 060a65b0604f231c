"""Which records of a batch fail by themselves? Parts of it are tried and those that fail are halved. No pyspark here.

Trying changes nothing: rows are made as the stream makes them and given to the sink in a transaction that is rolled back. So
whoever dies meanwhile leaves nothing, and the next driver looks again. docs/adr/0045.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from exactlyonce.api.spec import Delivery
from exactlyonce.errors import Refused
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.port import Quarantine
from exactlyonce.ledger.fence import Fenced, Permit, fence
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.ledger.rows import BatchStatus, LedgerView
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Positions, Ranges
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.landing import require_permit, unread
from exactlyonce_spark.left_out import FailingRecords, last_of_each
from exactlyonce_spark.source_check import require_next_is_there
from exactlyonce_spark.target import Target

MOST_AT_ONCE = 10_000
"""Records of one part; their rows pass through the memory of the driver."""

MOST_TRIES = 2_000
"""How often parts are tried. What fails by then and was not divided is left out as it is; a record costs some twenty tries."""

Fails = Callable[[Ranges], str | None]
"""Tries the records of some ranges, and returns what they fail with; None where they do not fail."""

log = logging.getLogger("exactlyonce.bisection")


@dataclass(frozen=True, slots=True)
class Part:
    """Ranges that failed, or that must have because what was tried beside them did not; and with what."""

    ranges: Ranges
    error: str


class _RolledBack(Exception):
    """Ends a transaction that only tried."""


class _ToEnd(Exception):
    """Ends the search of a driver that is to end."""


def waiting_ranges(view: LedgerView, order: Quarantine) -> Ranges:
    """Return what has not landed of the batch that an order is about; nothing where it does not wait any more.

    Performs no I/O.
    """
    row = view.batch(BatchNumber(order.batch))
    waits = row is not None and row.status in (BatchStatus.IN_PROGRESS, BatchStatus.FAILED)
    if row is None or not waits or row.ranges.ends != Positions.from_json(order.until):
        return Ranges()
    return unread(row.ranges, view.landed).non_empty()


def parts_of(ranges: Ranges, most: int) -> Iterator[Ranges]:
    """Yield the ranges in parts of at most so many records, in their order. Performs no I/O."""
    rest = ranges.non_empty()
    while rest:
        part, rest = divided(rest, most)
        yield part


def divided(ranges: Ranges, records: int) -> tuple[Ranges, Ranges]:
    """Return the first so many records of the ranges, and the others. Performs no I/O."""
    first: dict[Partition, OffsetRange] = {}
    others: dict[Partition, OffsetRange] = {}
    left = records
    for key, offsets in ranges.non_empty().items():
        middle = min(offsets.until_offset, offsets.from_offset + left)
        left -= middle - offsets.from_offset
        first[key] = OffsetRange(offsets.from_offset, middle)
        others[key] = OffsetRange(middle, offsets.until_offset)
    return Ranges(first).non_empty(), Ranges(others).non_empty()


def failing_parts(
    ranges: Ranges, fails: Fails, most_at_once: int = MOST_AT_ONCE, most_tries: int = MOST_TRIES
) -> tuple[Part, ...]:
    """Return the parts that fail, each of one record as far as the tries suffice; the largest is divided first.

    Where the first half of a part that failed does not fail, it is the other one that does, without a try.
    """
    tries = 0

    def tried(part: Ranges) -> str | None:
        nonlocal tries
        tries += 1
        return fails(part)

    found = [
        Part(part, error)
        for part in parts_of(ranges, most_at_once)
        if tries < most_tries and (error := tried(part)) is not None
    ]
    while tries < most_tries and found:
        largest = max(found, key=lambda one: one.ranges.record_count)
        if largest.ranges.record_count == 1:
            break
        found.remove(largest)
        first, second = divided(largest.ranges, largest.ranges.record_count // 2)
        error = tried(first)
        if error is None:
            found.append(Part(second, largest.error))
            continue
        found.append(Part(first, error))
        if tries >= most_tries:
            found.append(Part(second, largest.error))
        elif (error := tried(second)) is not None:
            found.append(Part(second, error))
    return tuple(found)


def records_that_fail(source: SourceCheck, fails: Fails, parts: tuple[Part, ...]) -> tuple[FailingRecords, ...]:
    """Return what is left out: single records that fail once more, and parts that could not be divided any further.

    The fingerprints are read before the last try, so that each is of the very record that failed then.
    """
    pieces = [
        FailingRecords(key, offsets, part.error)
        for part in parts
        for key, offsets in part.ranges.items()
    ]  # fmt: skip
    marks = last_of_each(source, [(one.partition, one.offsets) for one in pieces])
    found: list[FailingRecords] = []
    for one, mark in zip(pieces, marks, strict=True):
        again = one.error
        if one.offsets.record_count == 1:
            failed = fails(Ranges({one.partition: one.offsets}))
            if failed is None:
                continue
            again = failed
        found.append(replace(one, error=again, fingerprint=mark))
    return tuple(found)


def trying(read: Callable[[Ranges], Any], take: Callable[[Any], object]) -> Fails:
    """Return what tries ranges: `read` makes their rows, `take` gives them to the sink.

    What is wrong with a store, or with this process, is raised as it is.
    """

    def fails(ranges: Ranges) -> str | None:
        try:
            take(read(ranges))
        except Exception as problem:
            ending, words = ending_of(problem, in_batch=True)
            if ending is not Ending.BATCH_FAILED:
                raise
            return words
        return None

    return fails


def taking_nothing(rows: Any) -> None:
    """Take rows for a sink whose rows are in no transaction of the ledger: that they could be made is all that is tried."""


def rolled_back(ledger: Ledger, permit: Permit, target: Target) -> Callable[[Any], object]:
    """Return what writes rows in a transaction under the fence, and rolls it back.

    Constraints that the database checks at its COMMIT alone are not tried.
    """

    @rerun_after_lost_race
    def take(rows: Any) -> None:
        with suppress(_RolledBack), ledger.transaction(evicting=True) as transaction:
            fence(transaction, permit, Lock.SHARE)
            target.write(transaction, rows)
            raise _RolledBack

    return take


@dataclass(frozen=True)
class Bisection:
    """Looks for the records of one driver's poison batch. `is_to_end` is asked between two tries."""

    ledger: Ledger
    permit: Permit
    source: SourceCheck
    fails: Fails
    is_to_end: Callable[[], bool] = lambda: False

    def find(self, order: Quarantine | None, delivery: Delivery) -> tuple[FailingRecords, ...]:
        """Return the records that the query is to leave out; none where none fails by itself, or none is asked for.

        With AtMostOnce a batch is taken before it is read, and lost as a whole where it fails: nothing is to be found then.

        Raises:
            Fenced: this process may not land any more.
            OriginReplaced, RecordsLost: the source no longer holds the next record; reconciliation says which are gone.
            Unreachable: a store does not answer; the next driver looks again.
        """
        if order is None or not order.bisect or delivery is Delivery.AT_MOST_ONCE:
            return ()
        view = require_permit(self.ledger, self.permit)
        ranges = waiting_ranges(view, order)
        if not ranges:
            return ()
        reached("bisect.begun", order.batch)
        require_next_is_there(self.source, view.landed)

        def fails(part: Ranges) -> str | None:
            if self.is_to_end():
                raise _ToEnd
            error = self.fails(part)
            reached("bisect.tried", order.batch)
            return error

        try:
            found = records_that_fail(self.source, fails, failing_parts(ranges, fails))
        except _ToEnd:
            return ()  # a driver that is to end runs no batch any more
        except Fenced:
            raise
        except Refused as problem:
            log.warning("The records of batch %s cannot be tried one by one: %s", order.batch, problem)
            return ()
        log.info("Of batch %s %s parts fail by themselves and are left out.", order.batch, len(found))
        reached("bisect.found", order.batch)
        return found
