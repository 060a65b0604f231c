"""Spark's readers of Kinesis, in Python: as a stream, and of exactly given ranges.

Options are seen in plans and logs, so the login is not an option: whoever reads takes it from the mounted secret.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from exactlyonce.connectors.kinesis.aggregation import RawRecord, UserRecordData, user_records
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.clients import following_client, kinesis_client
from exactlyonce.connectors.kinesis.login import KinesisAddress, address_of
from exactlyonce.connectors.kinesis.positions import from_text, to_text
from exactlyonce.connectors.kinesis.reading import RecordFilter, ShardReader, read_range
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.connectors.kinesis.spec import OutsideShardRange
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_mounted
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.connectors.kinesis.known_shards import KnownShards, PackedMap
from exactlyonce_spark.connectors.kinesis.outside import OutsideRecords
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit, Planner
from exactlyonce_spark.connectors.kinesis.rows import arrow_batches, schema_text
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.decode.records import record_decoder
from exactlyonce_spark.decode.unread import LeftOut

log = logging.getLogger("exactlyonce.kinesis")

FORMAT = "exactlyonce_kinesis"

Offsets = dict[str, dict[str, str]]
"""As the codec has them, parsed."""


@dataclass(frozen=True)
class Place:
    """Which stream it is, where its login is to be found, and how data is decoded: `format` is the resource's, as JSON."""

    stream: str
    named: str
    region: str
    endpoint: str | None
    secret: str | None
    format: str
    outside: OutsideShardRange = OutsideShardRange.KEEP
    compute_shard: bool = False
    left_out: LeftOut = field(default_factory=LeftOut)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Place:
        """Return what the options say."""
        return cls(
            options["stream"],
            options["named"],
            options["region"],
            options.get("endpoint"),
            options.get("secret"),
            options["format"],
            OutsideShardRange(options["outside"]),
            "compute" in options,
            LeftOut.of(options.get("left_out")),
        )

    def options(self) -> dict[str, str]:
        """Return the options that say so."""
        told = {"stream": self.stream, "named": self.named, "region": self.region, "outside": self.outside.value}
        told |= {"format": self.format, **LeftOut.options(self.left_out.spans)}
        told |= {} if self.endpoint is None else {"endpoint": self.endpoint}
        told |= {"compute": "shard"} if self.compute_shard else {}
        return told | ({} if self.secret is None else {"secret": self.secret})

    def client(self) -> KinesisClient:
        """Return this process's client, with the login as it is mounted now; for a task.

        Raises:
            SecretMissing: if the secret is not there, or holds no whole login.
        """
        return kinesis_client(self.address())

    def lasting_client(self) -> KinesisClient:
        """Return a client that reads the mounted login again once it is refused; for the life of a query.

        Raises:
            SecretMissing: as `client`.
        """
        return following_client(self.address)

    def address(self) -> KinesisAddress:
        """Return where the service is, with the login as it is mounted now.

        Raises:
            SecretMissing: as `client`.
        """
        mounted = {} if self.secret is None else read_mounted(Path(os.environ[SECRETS_FOLDER]), self.secret)
        return address_of(self.region, self.endpoint, self.secret, mounted)


@dataclass
class ShardRange(InputPartition):
    """What one task reads; `fetched` are the records of it, where the planner still holds them.

    `listed` is the shard with its range of hash keys, where what is outside of it is not simply kept. `shards` is the map of
    shards, where each record's is to be computed.
    """

    shard: str
    start: str
    end: str
    fetched: tuple[RawRecord, ...] | None = None
    listed: Shard | None = None
    shards: PackedMap | None = None


def _batches(place: Place, part: ShardRange) -> Iterator[pa.RecordBatch]:
    start, end = from_text(part.start), from_text(part.end)
    outside = None if part.listed is None else OutsideRecords(part.listed, place.outside)
    keeps: RecordFilter = (lambda record, users: True) if outside is None else outside.keeps
    shards = None if part.shards is None else part.shards.unpacked()
    users = _users(place, part, start, end, keeps)
    yield from arrow_batches(users, place.stream, part.shard, record_decoder(place.format), place.left_out, shards)
    if outside is not None and outside.dropped:
        log.warning(
            "Left out of shard %s of stream %s, %s to %s: %d user records of aggregates with a key of another shard "
            "(source.kinesis.outsideShardRange: Drop).",
            *(part.shard, place.stream, part.start, part.end, outside.dropped),
        )


def _users(place: Place, part: ShardRange, start: int, end: int, keeps: RecordFilter) -> Iterator[UserRecordData]:
    if part.fetched is None:
        yield from read_range(place.client(), place.named, part.shard, start, end, keeps)
        return
    for record in part.fetched:
        users = user_records(record)
        if keeps(record, users):
            yield from (user for user in users if start <= user.record.position < end)


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads batches. Spark keeps one in a process of the driver for the life of the query."""

    def __init__(self, place: Place, limit: BatchLimit) -> None:
        self._place = place
        self._limit = limit
        self._planner: Planner | None = None
        self._ranges: KnownShards | None = _known_shards(place)

    def __getstate__(self) -> dict[str, Any]:
        """Tasks are given the reader, and not what the planner holds."""
        return {"_place": self._place, "_limit": self._limit, "_planner": None, "_ranges": None}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is now, and end."""
        self._planned().read_until_now()

    def initialOffset(self) -> Offsets:
        """Return no shard: Spark does not keep what is answered here, so every checkpoint is seeded.

        Spark asks before batch 0 of a seed, whose end names each shard where the stream starts; nothing is read in it.
        """
        return {self._place.stream: {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit of Spark's own: bytes and records are limited at once, by the planner."""
        return ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return where the next batch ends."""
        starts = _positions(start, self._place.stream)
        assert starts, "a query over Kinesis starts from a seeded checkpoint, which names its shards"
        ends = self._planned().ends(starts)
        if ends != starts:
            reached("source.end-planned")
        return {self._place.stream: _texts(ends)}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return a task for each shard that has something to read."""
        assert self._ranges is not None, "a task plans nothing"
        starts = _positions(start, self._place.stream)
        # One that appears is named where it starts, and read from the next batch on.
        read = {
            shard: (begin, until)
            for shard, until in _positions(end, self._place.stream).items()
            if (begin := starts.get(shard, until)) != until
        }
        shards = self._ranges.map(read) if read else None
        return [
            ShardRange(
                shard,
                to_text(begin),
                to_text(until),
                self._fetched(shard, begin, until),
                self._ranges.of(shard),
                shards,
            )
            for shard, (begin, until) in read.items()
        ]

    def _fetched(self, shard: str, begin: int, until: int) -> tuple[RawRecord, ...] | None:
        return None if self._planner is None else self._planner.fetched(shard, begin, until)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        assert isinstance(partition, ShardRange)
        return _batches(self._place, partition)

    def stop(self) -> None:
        """End the planner's threads."""
        if self._planner is not None:
            self._planner.close()

    def _planned(self) -> Planner:
        if self._planner is None:
            client, named = self._place.lasting_client(), self._place.named
            self._planner = Planner(
                lambda shard, start: ShardReader(client, named, shard, start),
                lambda: client.shards(named),
                self._limit,
                client.clock,
            )
        return self._planner


class KinesisRangesReader(DataSourceReader):
    """Reads exactly given ranges."""

    def __init__(self, place: Place, ranges: Ranges) -> None:
        self._place = place
        known, read = _known_shards(place), {str(key.key): span for key, span in ranges.non_empty().items()}
        shards = known.map(read) if read else None
        self._parts = [
            ShardRange(
                *(shard, to_text(span.from_offset), to_text(span.until_offset)), listed=known.of(shard), shards=shards
            )
            for shard, span in read.items()
        ]

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task for each range."""
        return self._parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        assert isinstance(partition, ShardRange)
        return _batches(self._place, partition)


class KinesisData(DataSource):
    """What Spark calls by the name in `FORMAT`."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of a record."""
        return schema_text(record_decoder(self.options["format"]).ddl)

    def streamReader(self, schema: Any) -> KinesisStreamReader:
        """Return the reader of a stream."""
        limit = BatchLimit(int(self.options["records"]), int(self.options["bytes"]), float(self.options["seconds"]))
        return KinesisStreamReader(Place.of(self.options), limit)

    def reader(self, schema: Any) -> KinesisRangesReader:
        """Return the reader of ranges."""
        return KinesisRangesReader(Place.of(self.options), Ranges.from_json(self.options["ranges"]))


def _known_shards(place: Place) -> KnownShards:
    return KnownShards(
        place.stream,
        lambda: place.client().shards(place.named),
        needs_range=place.outside is not OutsideShardRange.KEEP,
        needs_map=place.compute_shard,
    )


def _positions(offsets: Offsets, stream: str) -> dict[str, int]:
    return {shard: from_text(text) for shard, text in offsets[stream].items()}


def _texts(positions: Mapping[str, int]) -> dict[str, str]:
    return {shard: to_text(position) for shard, position in positions.items()}
