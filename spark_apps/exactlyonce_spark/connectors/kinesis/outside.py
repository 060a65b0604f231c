"""Records whose hash key is not within their shard's range, and what becomes of them. Performs no I/O; no pyspark here.

A record belongs to a shard by the MD5 of its partition key, or by an explicit hash key. Kinesis tells the explicit one to
nobody who reads; an aggregate of the Kinesis Producer Library (KPL) holds those of its user records. When a shard was split
and the KPL did not know yet, an aggregate reaches a shard which does not hold all of its keys. The KPL then sends every one of
its user records again, those that were in the right shard as well. So the Kinesis Client Library leaves out the whole
aggregate, and so does Drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exactlyonce.connectors.kinesis.aggregation import RawRecord, UserRecordData, is_aggregate
from exactlyonce.connectors.kinesis.shards import Shard, hash_key_of
from exactlyonce.connectors.kinesis.spec import OutsideShardRange
from exactlyonce.errors import Refused


class RecordOutsideShard(Refused):
    """A record is in a shard that does not hold its key."""


@dataclass
class OutsideRecords:
    """What becomes of the records of one shard that are outside of its range; `dropped` counts user records left out."""

    shard: Shard
    outside: OutsideShardRange
    dropped: int = 0

    def keeps(self, record: RawRecord, users: Sequence[UserRecordData]) -> bool:
        """Whether the user records of a record are read.

        Raises:
            RecordOutsideShard: if one is outside, and the batch is to fail then.
        """
        if self.outside is OutsideShardRange.KEEP or users[0].malformed is not None:
            return True
        if self.outside is OutsideShardRange.DROP and not is_aggregate(record):
            return True  # its explicit hash key, if it had one, is not known
        found = next((user for user in users if not self._holds(user)), None)
        if found is None:
            return True
        if self.outside is OutsideShardRange.FAIL:
            raise RecordOutsideShard(
                f"User record {found.record.sub_sequence_number} of record {record.sequence_number} of shard {self.shard.id} "
                "has a hash key outside of the shard's range, "
                f"{self.shard.starting_hash_key} to {self.shard.ending_hash_key}. Its producer sets explicit hash keys, mixes "
                "keys in aggregates, or sent it just before a reshard; set source.kinesis.outsideShardRange to Keep or Drop."
            )
        self.dropped += len(users)
        return False

    def _holds(self, user: UserRecordData) -> bool:
        return self.shard.holds_key(hash_key_of(user.partition_key, user.explicit_hash_key))
