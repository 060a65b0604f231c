"""What follows on a user record of which nothing but its number is known: the record itself tells how many it has."""

from __future__ import annotations

from exactlyonce.connectors.kinesis.aggregation import user_record_count
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.given_positions import Invalid, require_within
from exactlyonce.connectors.kinesis.leases import StartsBehind
from exactlyonce.connectors.kinesis.patience import Deadline
from exactlyonce.connectors.kinesis.reading import record_numbered
from exactlyonce.connectors.kinesis.shards import Shard


def position_behind(
    client: KinesisClient, stream: str, shard: Shard, behind: StartsBehind, deadline: Deadline, invalid: Invalid
) -> int | None:
    """Return the position behind a user record of a shard; None if its record cannot be read any more.

    Raises:
        StartInvalid: made by `invalid`, if the record is one of another shard or stream.
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    require_within(shard, behind.last.position, invalid)
    number = behind.last.sequence_number
    deadline.require(f"what follows on record {number} of shard {shard.id} of stream {stream} is not known")
    record = record_numbered(client, stream, shard.id, number, deadline)
    return None if record is None else behind.position(user_record_count(record))
