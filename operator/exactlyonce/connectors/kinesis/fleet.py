"""Ask one Kinesis for many streams: their shards, how long they keep records, the age of the oldest record not landed.

A stream is asked for once a round, however many of our streams read it. Each shard costs two calls a round while it is read to
its newest record, and none where a record waits whose age is known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtShardEnd,
    AtTrimHorizon,
    InsideRecord,
    read_from,
)
from exactlyonce.connectors.kinesis.shard_reader import first_page
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.connectors.specs import Origins, SourceSpec
from exactlyonce.errors import ExactlyOnceError, OriginMissing, SourceRefused
from exactlyonce.positions.ranges import Partition
from exactlyonce.source.connector import Answer
from exactlyonce.source.port import Bounds


class KinesisFleet:
    """One Kinesis as the monitor asks it; for one thread at a time."""

    def __init__(self, client: KinesisClient) -> None:
        self._client = client
        self._named: dict[str, str] = {}
        """How each stream is asked for, by its name: streams of another account have to be asked for by their ARN."""

    def origins(self, specs: Collection[SourceSpec]) -> Origins:
        """Return the streams that these name and that exist, with their shards.

        Raises:
            SourceUnreachable, SourceRefused: if Kinesis does not answer or refuses.
        """
        self._named = {spec.stream: spec.stream_arn or spec.stream for spec in specs if isinstance(spec, KinesisSource)}
        found: dict[str, tuple[str, ...]] = {}
        for name, named in self._named.items():
            try:
                found[name] = tuple(shard.id for shard in self._client.shards(named))
            except OriginMissing:
                continue
        return found

    def bounds(self, partitions: frozenset[Partition], *, committed_only: bool) -> Answer:
        """Return how long each shard's stream keeps records; where a shard ends now is not known.

        Raises:
            SourceUnreachable: if Kinesis does not answer.
        """
        found: dict[Partition, Bounds] = {}
        problems: dict[Partition, ExactlyOnceError] = {}
        for name in sorted({partition.origin for partition in partitions}):
            shards = [partition for partition in partitions if partition.origin == name]
            try:
                seconds = self._client.describe(self._named.get(name, name)).retention.total_seconds()
            except (OriginMissing, SourceRefused) as problem:
                problems |= dict.fromkeys(shards, problem)
                continue
            found |= dict.fromkeys(shards, Bounds(TRIM_HORIZON, SHARD_END, seconds))
        return Answer(found, problems)

    def timestamps(
        self, positions: Mapping[Partition, int], *, committed_only: bool
    ) -> Mapping[Partition, float | None]:
        """Return when the first record at or after each position arrived; None where there is none yet.

        Raises:
            SourceUnreachable, SourceRefused: if Kinesis does not answer or refuses.
        """
        return {key: self._arrival(key, position) for key, position in positions.items()}

    def close(self) -> None:
        """Nothing is open between calls."""

    def _arrival(self, key: Partition, position: int) -> float | None:
        stream, shard = self._named.get(key.origin, key.origin), str(key.key)
        start: dict[str, str]
        match read_from(position):
            case AtShardEnd():
                return None
            case AtTrimHorizon():
                start = {"ShardIteratorType": "TRIM_HORIZON"}
            case AfterRecord(number):
                start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": str(number)}
            case InsideRecord(number, _):
                start = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": str(number)}
        page = first_page(self._client, stream, shard, self._client.iterator(stream, shard, **start), most=1)
        return page.records[0].arrival_milliseconds / 1000 if page.records else None
