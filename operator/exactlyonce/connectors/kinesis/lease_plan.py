"""What is written to a lease table so that a KCL application continues exactly where the stream has landed. Performs no I/O.

A lease is moved only while nobody holds it, on the condition that its counter is still what was read, and never away from
SHARD_END: KCL deletes such a lease, creates its children, and expects neither to be undone. Nothing is written to a table that
holds a lease which is not the stream's (`lease_rights`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from exactlyonce.connectors.kinesis.lease_marks import Mark, marked_by, name_of
from exactlyonce.connectors.kinesis.lease_rights import Other, not_own
from exactlyonce.connectors.kinesis.leases import EVERY_USER_RECORD, Checkpoint, Lease, checkpoint_at
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON
from exactlyonce.connectors.kinesis.shards import Shard, children_of
from exactlyonce.source.port import ShownStream

AT_START = Checkpoint("TRIM_HORIZON")
UNMOVED_SECONDS = 30.0
"""How long the counter of a lease has to stand still until its worker counts as gone. A worker renews what it holds in a third
of its failover time, which is 10 s by default: one with a failover time of up to a minute and a half is known to live."""


class Holder(Enum):
    """Whether a worker holds a lease."""

    NOBODY = "nobody"
    UNKNOWN = "unknown"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Sighting:
    """Who held a lease when it was looked at last, and since when it has been seen unchanged."""

    owner: str | None
    counter: int
    since_seconds: float
    holder: Holder


@dataclass(frozen=True, slots=True)
class CreateLease:
    """A lease is made, unless somebody has made it meanwhile."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class MoveLease:
    """A lease that nobody holds gets another checkpoint, if its counter is still `counter`."""

    key: str
    counter: int
    checkpoint: Checkpoint
    mark: Mark
    children: frozenset[str] = frozenset()


LeaseWrite = CreateLease | MoveLease


@dataclass(frozen=True)
class LeasePlan:
    """What to write, parents before children; and why some leases are left alone, by shard.

    `held` are those of workers that live, with the worker: somebody else reads the stream. `unknown` are those with an owner
    that may be gone. `ended` are at SHARD_END, which the stream wrote before it started over or its ledger went back, and
    it has not landed them to their ends again. `others` are not the stream's; with any of them, nothing is written.
    """

    writes: tuple[LeaseWrite, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    others: Mapping[str, Other] = field(default_factory=dict)


def sightings_of(
    found: Mapping[str, Lease], before: Mapping[str, Sighting] | None, now_seconds: float
) -> dict[str, Sighting]:
    """Return who holds each lease, from what is found now and what was seen `before`, None on the first look.

    A worker lives if a counter has moved, or a lease was taken, between two looks. It is gone once nothing has moved for
    `UNMOVED_SECONDS`.
    """
    return {
        key: _sighting(lease, _UNSEEN if before is None else before.get(key), now_seconds)
        for key, lease in found.items()
    }


_UNSEEN = Sighting(None, -1, 0.0, Holder.UNKNOWN)
"""Before the first look at the table."""


def _sighting(lease: Lease, before: Sighting | None, now_seconds: float) -> Sighting:
    """Return who holds a lease; `before` is None where the table had been looked at and there was no such lease."""
    if lease.owner is None:
        return Sighting(None, lease.counter, now_seconds, Holder.NOBODY)
    if before is _UNSEEN:
        return Sighting(lease.owner, lease.counter, now_seconds, Holder.UNKNOWN)
    if before is None or (before.owner, before.counter) != (lease.owner, lease.counter):
        return Sighting(lease.owner, lease.counter, now_seconds, Holder.WORKER)
    holder = Holder.NOBODY if now_seconds - before.since_seconds >= UNMOVED_SECONDS else before.holder
    return Sighting(lease.owner, lease.counter, before.since_seconds, holder)


def plan_leases(
    landed: Mapping[str, int],
    shards: Sequence[Shard],
    found: Mapping[str, Lease],
    sightings: Mapping[str, Sighting],
    stream: ShownStream,
) -> LeasePlan:
    """Return what makes a table show the landed positions of a stream, by shard.

    `shards` are those that Kinesis lists. One that is not listed any more gets no lease: KCL would delete it. One that the
    stream has not come to yet gets a lease at TRIM_HORIZON once its parents have landed to their ends, as KCL itself makes it;
    without it a KCL application would find a gap in the shards and wait for minutes until it fills it.
    """
    listed = {shard.id: shard for shard in shards}
    positions = {**landed, **{shard.id: TRIM_HORIZON for shard in shards if _follows(shard, landed, listed)}}
    followers = {key: frozenset(child.id for child in children) for key, children in children_of(shards).items()}
    name = name_of(stream)
    others = not_own(found, landed, listed, name, took_over=stream.took_over)
    writes: list[LeaseWrite] = []
    held: dict[str, str] = {}
    unknown: list[str] = []
    ended: list[str] = []
    for key, position in sorted(positions.items()):  # a parent's id is always below its children's
        lease, checkpoint = found.get(key), checkpoint_at(position)
        children = followers.get(key, frozenset()) if checkpoint.is_end else frozenset()
        if lease is None:
            if key in listed:
                writes.append(CreateLease(_new_lease(listed[key], checkpoint, children, name)))
            continue
        holder = sightings[key].holder
        if holder is Holder.WORKER and lease.owner is not None:
            held[key] = lease.owner
        elif lease.checkpoint.is_end:
            ended += [] if checkpoint.is_end else [key]
        elif holder is Holder.UNKNOWN:
            unknown.append(key)
        elif not shows(lease, checkpoint, name):
            mark = marked_by(name, lease.mark, checkpoint.text)
            writes.append(MoveLease(key, lease.counter, checkpoint, mark, children))
    return LeasePlan(() if others else tuple(writes), held, tuple(unknown), tuple(ended), others)


def shows(lease: Lease, checkpoint: Checkpoint, name: str) -> bool:
    """Whether a lease that nobody holds is as the stream would write it."""
    is_free = lease.owner is None and not lease.is_pending
    return is_free and lease.checkpoint == checkpoint and lease.mark is not None and lease.mark.stream == name


def unproven_number(write: LeaseWrite, found: Mapping[str, Lease], stream: ShownStream) -> int | None:
    """Return the sequence number of a write that need not be a record's; None where it is one.

    Where a stream has only named the oldest record of a shard, it stands behind the number before. Such a number is behind none
    that this life of the stream has shown.
    """
    after = write.lease.checkpoint if isinstance(write, CreateLease) else write.checkpoint
    if after.sub_sequence_number != EVERY_USER_RECORD:
        return None
    number = int(after.sequence_number)
    if isinstance(write, CreateLease):
        return number
    lease = found[write.key]
    before, is_own = lease.checkpoint.sequence_number, lease.mark is not None and lease.mark.stream == name_of(stream)
    return None if is_own and before.isdecimal() and int(before) <= number else number


def from_the_start(write: LeaseWrite, found: Mapping[str, Lease], stream: ShownStream) -> LeaseWrite | None:
    """Return the write that shows TRIM_HORIZON instead, None where the lease shows it."""
    name = name_of(stream)
    if isinstance(write, CreateLease):
        mark = marked_by(name, None, AT_START.text)
        return CreateLease(replace(write.lease, checkpoint=AT_START, mark=mark))
    lease = found[write.key]
    if shows(lease, AT_START, name):
        return None
    return replace(write, checkpoint=AT_START, mark=marked_by(name, lease.mark, AT_START.text))


def _follows(shard: Shard, landed: Mapping[str, int], listed: Mapping[str, Shard]) -> bool:
    """Whether a shard comes next: the stream has landed each of its parents to the end, and not begun with itself."""
    owed = [parent for parent in shard.parents if parent in landed or parent in listed]
    return shard.id not in landed and bool(owed) and all(landed.get(parent) == SHARD_END for parent in owed)


def _new_lease(shard: Shard, checkpoint: Checkpoint, children: frozenset[str], name: str) -> Lease:
    return Lease(
        shard.id,
        checkpoint,
        parents=frozenset(shard.parents),
        children=children,
        hash_keys=(shard.starting_hash_key, shard.ending_hash_key),
        mark=marked_by(name, None, checkpoint.text),
    )
