"""A lease table shows where the stream has landed. It is written and never believed: the ledger says what has landed.

Whatever goes wrong here is told and tried again later. Nothing of it stops or delays what lands.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.lease_plan import LeasePlan, Sighting, plan_leases, sightings_of
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.connectors.kinesis.patience import Deadline, each
from exactlyonce.dynamo_db.answers import TableMissing
from exactlyonce.errors import ExactlyOnceError

_ROUND_SECONDS = 10.0
"""How long one round may go on writing; what is left is written in the next one."""

_TOLD_AGAIN_SECONDS = 600.0
_SHOWN = 3


@dataclass
class Seen:
    """What this process knows of a table from its earlier looks, and what it has told of it, and when."""

    is_fit: bool = False
    sightings: Mapping[str, Sighting] | None = None
    told: str | None = None
    told_at_seconds: float = 0.0


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

    def show(self, landed: Mapping[str, int]) -> str | None:
        """Write what has landed, by shard; return what somebody should be told, the same sentence at most every ten minutes."""
        try:
            told = self._show(landed)
        except ExactlyOnceError as problem:
            if isinstance(problem, TableMissing):
                self._seen.is_fit = False  # somebody deleted it: the next look makes it again
            told = f"The lease table does not show what has landed: {problem}"
        now = self._client.clock.elapsed_seconds()
        if told == self._seen.told and now < self._seen.told_at_seconds + _TOLD_AGAIN_SECONDS:
            return None
        self._seen.told, self._seen.told_at_seconds = told, now
        return told

    def _show(self, landed: Mapping[str, int]) -> str | None:
        clock = self._client.clock
        deadline = Deadline.within(clock, _ROUND_SECONDS)
        if not self._seen.is_fit:
            self._table.require()
            self._seen.is_fit = True
        shards = self._client.shards(self._stream)
        found = self._table.leases()
        self._seen.sightings = sightings_of(found, self._seen.sightings, clock.elapsed_seconds())
        plan = plan_leases(landed, shards, found, self._seen.sightings)
        for _ in each(lambda write: deadline.has_passed or self._table.write(write), plan.writes):
            pass
        return words_of(plan, self._table.place)


def words_of(plan: LeasePlan, place: str) -> str | None:
    """Return the sentence about leases that are left alone; None where there is nothing to tell. Performs no I/O."""
    if plan.held:
        shards, worker = _some(tuple(plan.held)), next(iter(plan.held.values()))
        return (
            f"Two consumers: worker {one_line(worker, 80)!r} of a KCL application holds the lease of {shards} in {place}, and "
            "this stream reads the same data stream; its leases are left to it. Stop one of the two, or name another table in "
            "spec.source.kinesis.leaseTable."
        )
    if plan.ended:
        return (
            f"Two consumers: the lease of {_some(plan.ended)} in {place} is at SHARD_END, and this stream has not landed that "
            "shard to its end; such a lease is never moved back. Name another table in spec.source.kinesis.leaseTable."
        )
    return None


def _some(shards: tuple[str, ...]) -> str:
    more = len(shards) - _SHOWN
    return ", ".join(shards[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
