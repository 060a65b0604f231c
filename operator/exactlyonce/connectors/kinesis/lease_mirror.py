"""A lease table shows where the stream has landed. It is written and never believed: the ledger says what has landed.

Whatever goes wrong here is told and tried again later. Nothing of it stops or delays what lands.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import assert_never

from exactlyonce.bounded_text import one_line, some_of
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.dynamo_db import TableMissing
from exactlyonce.connectors.kinesis.lease_plan import (
    UNMOVED_SECONDS,
    CreateLease,
    LeasePlan,
    LeaseWrite,
    Sighting,
    from_the_start,
    plan_leases,
    sightings_of,
    unproven_number,
)
from exactlyonce.connectors.kinesis.lease_rights import Other
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.connectors.kinesis.leases import Lease
from exactlyonce.connectors.kinesis.patience import Deadline, each
from exactlyonce.connectors.kinesis.reading import first_record
from exactlyonce.errors import ExactlyOnceError, SourceUnreachable
from exactlyonce.source.port import NotShown, NotShownBecause, ShownStream

_ROUND_SECONDS = 10.0
"""How long one round may continue writing; what is left is written in the next one."""


@dataclass
class Seen:
    """What this process knows of a table from its earlier looks."""

    is_fit: bool = False
    sightings: Mapping[str, Sighting] | None = None


_MOST_KEPT = 10_000
_KEPT: OrderedDict[Hashable, Seen] = OrderedDict()
_GUARD = threading.Lock()


def seen_of(table: Hashable) -> Seen:
    """Return what this process has seen of a table: a pass is over before it can tell whether a worker renews its leases."""
    with _GUARD:
        seen = _KEPT.setdefault(table, Seen())
        _KEPT.move_to_end(table)
        while len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
        return seen


@dataclass(frozen=True)
class KnownTable:
    """A lease table of one stream, and what this process has seen of it."""

    table: LeaseTable
    seen: Seen


class LeaseMirror:
    """Shows the landed positions of one stream in a lease table."""

    def __init__(self, client: KinesisClient, stream: str, known: KnownTable) -> None:
        self._client = client
        self._stream = stream
        self._table = known.table
        self._seen = known.seen

    def show(self, stream: ShownStream, landed: Mapping[str, int]) -> NotShown | None:
        """Write what has landed, by shard; return why the table does not show it, None where it does."""
        try:
            return self._show(stream, landed)
        except ExactlyOnceError as problem:
            if isinstance(problem, TableMissing):
                self._seen.is_fit = False  # somebody deleted it: the next look makes it again
            told = f"The lease table does not show what has landed: {problem}"
            return NotShown(NotShownBecause.FAILED, told)

    def _show(self, stream: ShownStream, landed: Mapping[str, int]) -> NotShown | None:
        clock = self._client.clock
        deadline = Deadline.within(clock, _ROUND_SECONDS)
        if not self._seen.is_fit:
            self._table.require()
            self._seen.is_fit = True
        shards = self._client.shards(self._stream)
        found = self._table.leases()
        self._seen.sightings = sightings_of(found, self._seen.sightings, clock.elapsed_seconds())
        plan = plan_leases(landed, shards, found, self._seen.sightings, stream)

        def shown(write: LeaseWrite) -> bool:
            return not deadline.has_passed and self._write(write, found, stream, deadline)

        written = list(each(shown, plan.writes))
        left = left_alone(plan, self._table.place)
        if left is None and not all(written):
            told = f"Not all leases in {self._table.place} are written yet; the next look continues."
            return NotShown(NotShownBecause.PENDING, told)
        return left

    def _write(self, write: LeaseWrite, found: Mapping[str, Lease], stream: ShownStream, deadline: Deadline) -> bool:
        """Write a lease; return whether it is written.

        KCL cannot continue behind a number that Kinesis never gave to a record. Where a shard holds no record up to the number
        of a lease, TRIM_HORIZON names the same place.
        """
        wanted: LeaseWrite | None = write
        number = unproven_number(write, found, stream)
        if number is not None:
            key = write.lease.key if isinstance(write, CreateLease) else write.key
            try:
                oldest = first_record(self._client, self._stream, key, deadline)
            except SourceUnreachable:
                if deadline.has_passed:
                    return False  # the next round asks again
                raise
            if oldest is None or oldest.sequence_number > number:
                wanted = from_the_start(write, found, stream)
        return wanted is None or self._table.write(wanted)


def left_alone(plan: LeasePlan, place: str) -> NotShown | None:
    """Return why leases are left alone, None where every lease is written. Performs no I/O."""
    if plan.held:
        shards, worker = some_of(tuple(plan.held)), next(iter(plan.held.values()))
        told = (
            f"Two consumers: worker {one_line(worker, 80)!r} of a KCL application holds the lease of {shards} in {place}, so "
            "its leases are left to it. If that application reads the same data stream as this stream, each record takes "
            "effect in both: stop one of the two. Else name another table in spec.source.kinesis.leaseTable."
        )
        return NotShown(NotShownBecause.TWO_CONSUMERS, told)
    for why in Other:
        of_them = tuple(key for key, other in plan.others.items() if other is why)
        if of_them:
            return NotShown(NotShownBecause.OF_ANOTHER, _others_told(why, some_of(of_them), place))
    if plan.ended:
        told = (
            f"The lease of {some_of(plan.ended)} in {place} is at SHARD_END, which this stream wrote before it started over or "
            "its ledger went back. Such a lease is never moved back, so a KCL application would miss the rest of that shard "
            "until the stream has landed it again. Wait for that, or name another table in spec.source.kinesis.leaseTable."
        )
        return NotShown(NotShownBecause.FAILED, told)
    if plan.unknown:
        told = (
            f"The lease of {some_of(plan.unknown)} in {place} has a worker that may be gone; it is written once its counter "
            f"has stood still for {UNMOVED_SECONDS:.0f} s."
        )
        return NotShown(NotShownBecause.PENDING, told)
    return None


def _others_told(why: Other, shards: str, place: str) -> str:
    """Return why nothing is written to a table that holds leases of somebody else."""
    nothing = "so nothing is written to that table"
    match why:
        case Other.APPLICATION:
            return (
                f"The lease of {shards} in {place} was written by a KCL application and not by this stream, {nothing}: the "
                "application would lose its checkpoints. Name another table in spec.source.kinesis.leaseTable, or delete this "
                "one if nothing needs it."
            )
        case Other.STREAM:
            return (
                f"The lease of {shards} in {place} shows where another stream has landed, {nothing}. Name a table of this "
                "stream alone in spec.source.kinesis.leaseTable, or delete this one if its stream is gone."
            )
        case Other.SUCCESSOR:
            return (
                f"Another stream has taken over the lease of {shards} in {place} from this one, {nothing}, and both read the "
                "same records. Suspend one of the two, or name another table in spec.source.kinesis.leaseTable."
            )
        case Other.MOVED_ON:
            return (
                f"A KCL application has continued behind the checkpoint that this stream wrote to the lease of {shards} in "
                f"{place}, {nothing}, and what the application has processed since, this stream lands as well. Let the stream "
                "start over from the table (start: {from: LeaseTable}), name another table in "
                "spec.source.kinesis.leaseTable, or delete this one if nothing needs it."
            )
        case _:
            assert_never(why)
