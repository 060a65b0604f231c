"""A stream takes over from a KCL application: it starts where the leases say that the application has stopped.

Nothing is written, and nobody is taken anything from: while a worker renews a lease, the stream refuses to start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.dynamo_db import TableMissing
from exactlyonce.connectors.kinesis.following import position_behind
from exactlyonce.connectors.kinesis.given_positions import Invalid, given
from exactlyonce.connectors.kinesis.lease_mirror import KnownTable
from exactlyonce.connectors.kinesis.lease_plan import UNMOVED_SECONDS, Holder, sightings_of
from exactlyonce.connectors.kinesis.leases import (
    Lease,
    StartsAt,
    StartsAtTip,
    StartsAtUnknownMoment,
    StartsBehind,
    continuation,
)
from exactlyonce.connectors.kinesis.look_back import tip_of
from exactlyonce.connectors.kinesis.patience import Deadline, each
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.errors import StartInvalid

_LOOK_SECONDS = 3.0


def taken_over(
    client: KinesisClient, stream: str, shards: Sequence[Shard], known: KnownTable, deadline: Deadline
) -> dict[str, int]:
    """Return where each shard continues, by the leases of an application that has stopped.

    Raises:
        StartInvalid: if the application has not stopped, or its leases are not those of this stream's shards.
        TableUnfit: if the table has another schema.
        SourceRefused, SourceUnreachable, StoreForbidden, StoreUnreachable: by situation.
    """

    def invalid(what: str) -> StartInvalid:
        return StartInvalid(
            f"source.kinesis.start: LeaseTable cannot be used, because {known.table.place} {what}; nothing was written; "
            "correct source.kinesis.leaseTable, or start from Positions, Timestamp or TrimHorizon."
        )

    try:
        leases = _abandoned(client, known)
    except TableMissing as problem:
        raise invalid("is not there") from problem
    by_id = {shard.id: shard for shard in shards}
    kept = [lease for key, lease in sorted(leases.items()) if key in by_id or not lease.checkpoint.is_end]
    missing = [lease.key for lease in kept if lease.key not in by_id]
    if missing:
        return given(shards, dict.fromkeys(missing, TRIM_HORIZON), invalid)  # which names them
    _require_none_prepared(kept, invalid)

    def position_of(lease: Lease) -> int:
        shard = by_id[lease.key]
        match continuation(lease.checkpoint):
            case StartsAt(position):
                return position
            case StartsAtTip():
                return tip_of(client, stream, shard, deadline)
            case StartsAtUnknownMoment():
                raise invalid(f"has the lease of {shard.id} at AT_TIMESTAMP, a moment that the application alone knows")
            case StartsBehind(last) as behind:
                following = position_behind(client, stream, shard, behind, deadline, invalid)
                if following is None:
                    raise invalid(
                        f"has the lease of {shard.id} behind record {last.sequence_number}, which has passed its retention or "
                        "is of another stream, so nobody can tell whether records behind it are lost"
                    )
                return following

    positions = dict(zip((lease.key for lease in kept), each(position_of, kept), strict=True))
    return given(shards, _without_followers(positions, by_id), invalid)


def _require_none_prepared(leases: Iterable[Lease], invalid: Invalid) -> None:
    prepared = [lease.key for lease in leases if lease.is_prepared and not lease.checkpoint.is_end]
    if prepared:
        raise invalid(
            f"has a prepared checkpoint of {prepared[0]}, and the application alone knows whether the records up to there have "
            "taken effect: start it again, and have it checkpoint before it stops"
        )


def _without_followers(positions: Mapping[str, int], shards: Mapping[str, Shard]) -> dict[str, int]:
    """Leave out shards that nobody has begun and whose parents are not at their ends: they follow on these."""
    return {
        key: position
        for key, position in positions.items()
        if position != TRIM_HORIZON
        or all(positions.get(parent, SHARD_END) == SHARD_END for parent in shards[key].parents)
    }


def _abandoned(client: KinesisClient, known: KnownTable) -> dict[str, Lease]:
    """Return the leases once none of them has moved for so long that no worker can hold one.

    Raises:
        StartInvalid: if a worker lives.
        TableMissing: if there is no table.
    """
    clock, sightings = client.clock, None
    while True:
        leases = known.table.leases()
        sightings = sightings_of(leases, sightings, clock.elapsed_seconds())
        held = [key for key, sighting in sightings.items() if sighting.holder is Holder.WORKER]
        if held:
            worker = one_line(leases[held[0]].owner or "?", 80)
            raise StartInvalid(
                f"source.kinesis.start: LeaseTable cannot be used while worker {worker!r} holds the lease of {held[0]} in "
                f"{known.table.place}; nothing was written; stop the KCL application, wait for {UNMOVED_SECONDS:.0f} s, and "
                "start the stream again."
            )
        if all(sighting.holder is Holder.NOBODY for sighting in sightings.values()):
            known.seen.sightings = sightings
            return leases
        clock.sleep(_LOOK_SECONDS)
