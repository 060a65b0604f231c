"""Kinesis as a source inside Spark: its records as DataFrames."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from exactlyonce.api.format import Format
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.connectors.kinesis.between_moments import ranges_between
from exactlyonce.connectors.kinesis.codec import CODEC, KinesisCodec
from exactlyonce.connectors.kinesis.given_ranges import given_ranges
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions, Ranges
from exactlyonce.schema.moment import Moments
from exactlyonce_spark.connectors.kinesis.dividing import ShardDivider
from exactlyonce_spark.connectors.kinesis.planner import HELD_BYTES, READING_SECONDS
from exactlyonce_spark.connectors.ports import PositionPart, RecordColumns, Spot
from exactlyonce_spark.decode.records import as_option
from exactlyonce_spark.decode.unread import LeftOut

_VIEW = {
    "_stream": "stream",
    "_shard": "shard_id",
    "_position": "position",
    "_sequence_number": "sequence_number",
    "_sub_sequence_number": "sub_sequence_number",
    "_timestamp": "approximate_arrival_timestamp",
    "_key": "cast(partition_key as binary)",
    "_explicit_hash_key": "explicit_hash_key",
    "_computed_shard": "computed_shard",
}
_WHERE = (
    "concat(' in stream ', _stream, ' shard ', _shard, ' sequence number ', _sequence_number, "
    "' sub-sequence number ', _sub_sequence_number)"
)
_PLACE = (
    "to_json(named_struct('stream', stream, 'shard', shard_id, 'sequenceNumber', "
    "regexp_replace(sequence_number, '^0+(?=.)', ''), 'subSequenceNumber', sub_sequence_number))"
)
"""What GetRecords calls a record: its rows have the number in one width."""


@dataclass(frozen=True)
class KinesisRecords:
    """A `SourceReader` over shards, which holds no login: the processes that read take it from the mounted secret."""

    spec: KinesisSource
    format: Format
    interval: timedelta | None
    codec: KinesisCodec = CODEC

    @property
    def reserved(self) -> tuple[str, ...]:
        """The names that the view `source` has of Kinesis."""
        return tuple(_VIEW)

    @property
    def position_columns(self) -> Mapping[str, PositionPart]:
        """Stream, shard, and the position as a text whose order is that of positions."""
        return {
            "_stream": PositionPart.ORIGIN,
            "_shard": PositionPart.PARTITION,
            "_position": PositionPart.POSITION_TEXT,
        }

    @property
    def names_before_reading(self) -> bool:
        """A child is named in the end of a batch at its start, and read from the next batch on."""
        return True

    def columns(self, records: Any) -> RecordColumns:
        """Return the columns of Kinesis' records."""
        return RecordColumns(
            _VIEW,
            _WHERE,
            "stream",
            "shard_id",
            "position",
            _PLACE,
        )

    def stream(self, session: Any, partitions: int, most: int | None, left_out: Collection[Spot] = ()) -> Any:
        """Return the streaming DataFrame of the records.

        Where the next batch follows at once, a batch is no larger than what the planner can hand over, so that every record is
        read from Kinesis once; with an interval it has to be as large as asked, and takes what it takes.
        """
        spec, interval = self.spec, self.interval
        seconds = READING_SECONDS if interval is None else max(READING_SECONDS, interval.total_seconds())
        limits = {
            "records": spec.batch_records if most is None else min(spec.batch_records, most),
            "bytes": min(spec.batch_bytes, HELD_BYTES) if interval is None else spec.batch_bytes,
            "seconds": seconds,
        }
        options = self._options(left_out) | {name: str(value) for name, value in limits.items()}
        return session.readStream.format(_registered(session)).options(**options).load()

    def batch(self, session: Any, ranges: Ranges, left_out: Collection[Spot] = ()) -> Any:
        """Return the records of exactly these ranges."""
        options = self._options(left_out) | {"ranges": ranges.to_json()}
        return session.read.format(_registered(session)).options(**options).load()

    def divider(self, session: Any, *, of_backfill: bool) -> ShardDivider:
        """Return what divides ranges into records that the shards hold."""
        from exactlyonce_spark.connectors.kinesis.records import Place

        place = Place.of(self._options())
        return ShardDivider(place.client, place.named)

    def ranges_between(
        self, session: Any, stands: Positions, moments: Moments
    ) -> Mapping[Partition, tuple[OffsetRange, ...]]:
        """Return the ranges of what arrived between two moments."""
        from exactlyonce_spark.connectors.kinesis.records import Place

        place = Place.of(self._options())
        return ranges_between(place.client(), place.stream, place.named, stands, moments)

    def ranges_given(
        self, session: Any, stands: Positions, given: Sequence[NamedSpan]
    ) -> Mapping[Partition, tuple[OffsetRange, ...]]:
        """Return the ranges of shards that a person gives."""
        from exactlyonce_spark.connectors.kinesis.records import Place

        place = Place.of(self._options())
        return given_ranges(place.client(), place.stream, place.named, given)

    def task_ranges(self, input_partitions: Iterable[Any]) -> None:
        """Return nothing: Spark does not show what a task of a source in Python reads."""

    def _options(self, left_out: Collection[Spot] = ()) -> dict[str, str]:
        from exactlyonce_spark.connectors.kinesis.records import Place

        spec = self.spec
        secret = None if spec.secret_ref is None else spec.secret_ref.name
        return Place(
            spec.stream,
            spec.named,
            spec.where,
            spec.endpoint,
            secret,
            as_option(self.format),
            spec.outside_shard_range,
            spec.compute_shard,
            LeftOut(tuple(left_out)),
        ).options()


def _registered(session: Any) -> str:
    from exactlyonce_spark.connectors.kinesis.records import FORMAT, KinesisData

    session.dataSource.register(KinesisData)
    return FORMAT


class KinesisConnector:
    """Kinesis."""

    def reader(self, spec: StreamSpec, secrets: Secrets, life: str) -> KinesisRecords:
        """Return the reader of a stream; a secret that lacks is told here, and not by Spark."""
        kinesis = spec.source.spec
        assert isinstance(kinesis, KinesisSource), "the registry gives each connector its own spec"
        secrets(kinesis.secret_ref)
        return KinesisRecords(kinesis, spec.source.format, spec.trigger.interval)

    def load_classes(self, session: Any) -> None:
        """Load nothing: the reader is written in Python."""


SOURCE = KinesisConnector()
