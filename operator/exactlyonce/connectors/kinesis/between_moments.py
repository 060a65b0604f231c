"""Which records of a data stream a backfill of what arrived between two moments reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.look_back import at_moment, behind_last_between
from exactlyonce.connectors.kinesis.patience import Deadline, each
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.errors import NotBackfilled
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions
from exactlyonce.schema.moment import Moments

_LOOK_SECONDS = 240.0
"""How long all shards may be looked at, as where a stream starts."""

_SHOWN = 5


def ranges_between(
    client: KinesisClient, stream: str, named: str, stands: Positions, moments: Moments
) -> Mapping[Partition, tuple[OffsetRange, ...]]:
    """Return the range of each shard from its first record that arrived between two moments to behind its last one.

    `stream` is the name of the data stream, which is `named` in calls, and `stands` where the stream has landed. A shard that
    is listed no more holds no record that its retention has left.

    Raises:
        NotBackfilled: if some of the records have not landed yet, or may have passed the retention.
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    begin, until = moments
    _require_retained(client, stream, named, begin)
    deadline = Deadline.within(client.clock, _LOOK_SECONDS)

    def range_of(shard: Shard) -> OffsetRange | None:
        end = behind_last_between(client, named, shard, begin, until, deadline)
        return None if end is None else OffsetRange(at_moment(client, named, shard, begin, deadline), end)

    shards = client.shards(named)
    ranges = zip(shards, each(range_of, shards), strict=True)
    found = {Partition(stream, shard.id): span for shard, span in ranges if span is not None}
    waiting = [str(key.key) for key, span in found.items() if stands.get(key, 0) < span.until_offset]
    if waiting:
        named_shards = ", ".join(waiting[:_SHOWN])
        more = f" and {len(waiting) - _SHOWN} more" if len(waiting) > _SHOWN else ""
        raise NotBackfilled(
            f"Of what arrived in {stream} between these two moments, records have not landed yet: of {named_shards}{more}. Ask "
            "again once they have, or end at an earlier moment"
        )
    return {key: (span,) for key, span in found.items()}


def _require_retained(client: KinesisClient, stream: str, named: str, begin: datetime) -> None:
    """Require that nothing that arrived since a moment has passed the retention.

    A retention that was raised since is not known of: what had passed the shorter one is taken for never written.
    """
    described = client.described(named)
    oldest = datetime.fromtimestamp(client.clock.wall_seconds(), UTC) - described.retention
    if max(begin, described.created) < oldest:
        raise NotBackfilled(
            f"What arrived in {stream} before {oldest:%Y-%m-%dT%H:%M:%SZ} has passed its retention. Begin the backfill some "
            "minutes later than that, since what is oldest expires while it runs"
        )
