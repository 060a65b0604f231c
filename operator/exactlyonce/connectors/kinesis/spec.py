"""What a stream says of Kinesis: its data stream, where it starts, how much it reads at a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from exactlyonce.connectors.kinesis.positions import from_text, to_text
from exactlyonce.connectors.kinesis.shards import NAME
from exactlyonce.connectors.kinesis.stream_rules import STREAM_RULES
from exactlyonce.connectors.specs import Origins
from exactlyonce.positions.ranges import Partition, Positions, Ranges
from exactlyonce.positions.selection import Selection
from exactlyonce.schema.aws_login import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN
from exactlyonce.schema.constraints import AllOf, Rule, matches
from exactlyonce.schema.model import Model, SecretRef, Whole, without_nulls
from exactlyonce.schema.moment import Moment
from exactlyonce.schema.places import DATA_STREAM, Endpoint, Region, TableName

StreamName = Annotated[
    str,
    Field(min_length=1, max_length=128),
    matches(NAME, "write a stream's name: letters, digits, dots, underscores and hyphens"),
]
StreamArn = Annotated[
    str,
    Field(min_length=1, max_length=256),
    matches(
        rf"{DATA_STREAM}{NAME}",
        "write the stream's ARN, such as arn:aws:kinesis:eu-central-1:123456789012:stream/orders",
    ),
]
PositionText = Annotated[
    str,
    Field(min_length=1, max_length=120),
    matches(
        "TRIM_HORIZON|SHARD_END|after (0|[1-9][0-9]{0,75})|(0|[1-9][0-9]{0,75}):[1-9][0-9]{0,8}",
        "write TRIM_HORIZON, SHARD_END, after <sequence number>, or <sequence number>:<sub-sequence number> from 1 on, with no "
        "zeros in front",
    ),
]
ShardPositions = Annotated[
    dict[str, PositionText],
    Field(max_length=1000),
    BeforeValidator(without_nulls),
    AllOf(
        (
            Rule(
                "self.all(shard, shard.matches('^shardId-[0-9]{12}$'))",
                lambda given: all(
                    len(shard) == 20 and shard.startswith("shardId-") and shard[8:].isascii() and shard[8:].isdigit()
                    for shard in given
                ),
                "name shards as Kinesis does, such as shardId-000000000000",
            ),
        )
    ),
]

DEFAULT_BATCH_RECORDS = 1_000_000
"""The most records of a batch where the resource sets no limit: a first backlog has to fit into transactionTimeout."""

DEFAULT_BATCH_BYTES = 256 * 1024 * 1024
"""The most bytes of records of a batch where the resource sets no limit."""


class StartFrom(StrEnum):
    """Where a new stream starts."""

    TRIM_HORIZON = "TrimHorizon"
    LATEST = "Latest"
    TIMESTAMP = "Timestamp"
    POSITIONS = "Positions"
    LEASE_TABLE = "LeaseTable"


class OutsideShardRange(StrEnum):
    """What becomes of records whose hash key is not within their shard's range."""

    KEEP = "Keep"
    DROP = "Drop"
    FAIL = "Fail"


class Start(Model):
    """Where a new stream starts; resolved once, before its first batch."""

    from_: StartFrom = Field(
        StartFrom.TRIM_HORIZON,
        alias="from",
        description="Where a new stream starts: with the oldest record of every shard, behind the newest one, at a moment, "
        "at positions that are given, or where an application of the Kinesis Client Library (KCL) has stopped, by the leases "
        "in leaseTable. An application that still runs is refused.",
    )
    timestamp: Moment | None = Field(
        None,
        description="With from: Timestamp, each shard is read from its first record that arrived at or after this moment "
        "(RFC 3339).",
    )
    positions: ShardPositions = Field(
        {},
        description="With from: Positions, where each shard starts, by shard id: TRIM_HORIZON; after <sequence number>, behind "
        "that record; <sequence number>:<sub-sequence number>, at that user record of an aggregate. Each shard of "
        "the stream has to be given, except ancestors of those given, which are not read, and descendants, which follow.",
    )

    rules = (
        Rule(
            "(self.from == 'Timestamp') == has(self.timestamp)",
            lambda it: (it.from_ is StartFrom.TIMESTAMP) == (it.timestamp is not None),
            "timestamp belongs to from: Timestamp, and from: Timestamp needs it",
        ),
        Rule(
            "(self.from == 'Positions') == (has(self.positions) && size(self.positions) > 0)",
            lambda it: (it.from_ is StartFrom.POSITIONS) == bool(it.positions),
            "positions belongs to from: Positions, and from: Positions needs it",
        ),
    )

    @property
    def moment(self) -> datetime:
        """The timestamp given; only where from is Timestamp."""
        assert self.timestamp is not None
        return self.timestamp

    def positions_in(self, stream: str) -> Positions:
        """Return the positions given, of shards of this stream."""
        return Positions({Partition(stream, shard): from_text(text) for shard, text in self.positions.items()})


class LeaseTable(Model):
    """A lease table of the Kinesis Client Library (KCL) 2 or 3."""

    table_name: TableName = Field(description="The table; KCL's own default is the name of the application.")
    region: Region | None = Field(None, description="The table's region; the default is the data stream's.")
    endpoint: Endpoint | None = Field(None, description="The address of a service other than Amazon's.")


class KinesisSource(Model):
    """Records of a Kinesis data stream."""

    stream_rules: ClassVar[tuple[Rule, ...]] = STREAM_RULES
    own_fields: ClassVar[tuple[str, ...]] = ("start", "leaseTable")
    folder_fields: ClassVar[tuple[str, ...]] = ()
    origin_noun: ClassVar[str] = "stream"
    positions_count_records: ClassVar[bool] = False
    positions_can_be_chosen: ClassVar[bool] = True
    backfilled_by: ClassVar[str] = "the arrival times of the records"
    ranges_named_by: ClassVar[str] = "positions as texts"
    tasks_show_ranges: ClassVar[bool] = False

    stream_name: StreamName | None = Field(None, description="The data stream's name; it needs region.")
    stream_arn: StreamArn | None = Field(
        None, description="The data stream's ARN, which names its region; for a stream of another account."
    )
    region: Region | None = Field(None, description="The data stream's region; belongs to streamName.")
    endpoint: Endpoint | None = Field(None, description="The address of a service other than Amazon's.")
    secret_ref: SecretRef | None = Field(
        None,
        description=f"The login; the keys read are {ACCESS_KEY}, {SECRET_KEY}, {SESSION_TOKEN}. Without it, drivers, and "
        "`exactlyonce run`, use the login of their process, such as a web identity. The operator reads the stream too, so "
        "without it an administrator has to allow streamArn, and leaseTable, in the chart's sources.locations.",
    )
    start: Start = Field(Start(), description="Where a new stream starts.")
    lease_table: LeaseTable | None = Field(
        None,
        description="A lease table that shows where the stream has landed, so that a KCL application continues exactly there "
        "once the stream is suspended. It is written before each launch, now and then while the driver runs, and when the "
        "driver ends; it is created if it does not exist. Each lease that is written carries a mark of the stream. A table in "
        "which an application, or another stream, has written a lease is not written to, and an event says so, unless the "
        "stream has started from it with start: {from: LeaseTable}. The login is that of secretRef.",
    )
    outside_shard_range: OutsideShardRange = Field(
        OutsideShardRange.KEEP,
        description="What becomes of records whose hash key is not within their shard's range. Drop leaves out whole "
        "aggregates of the Kinesis Producer Library that hold such a user record, as the Kinesis Client "
        "Library does: after a reshard the producer sends all of them again. Drop loses records of "
        "aggregators that mix keys. Fail fails the batch and names the record, plain ones by their partition "
        "key as well; it is for producers that set no explicit hash keys.",
    )
    compute_shard: bool = Field(
        False,
        description="Whether `_computed_shard` says to which shard the hash key of a record belongs, beside `_shard`, which is "
        "where it was. It is null for malformed records, and without this.",
    )
    max_records_per_trigger: Whole | None = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="The maximum number of user records per batch; those of an aggregate are counted one by one. Without it a "
        f"batch has at most {DEFAULT_BATCH_RECORDS:,}.",
    )
    max_bytes_per_trigger: Whole | None = Field(
        None,
        ge=1,
        le=1 << 40,
        description="The maximum number of bytes of records per batch; a single record may exceed it. Without it a batch has "
        f"at most {DEFAULT_BATCH_BYTES:,}.",
    )

    one_of = ("stream_name", "stream_arn")
    rules = (
        Rule(
            "self.start.from != 'LeaseTable' || has(self.leaseTable)",
            lambda it: it.start.from_ is not StartFrom.LEASE_TABLE or it.lease_table is not None,
            "start from: LeaseTable needs leaseTable, which says where the leases are",
        ),
        Rule(
            "has(self.streamName) == has(self.region)",
            lambda it: (it.stream_name is None) == (it.region is None),
            "region belongs to streamName, and streamName needs it; streamArn names the region itself",
        ),
    )

    @property
    def stream(self) -> str:
        """The data stream's name."""
        return self.stream_name or (self.stream_arn or "").rpartition("/")[2]

    @property
    def named(self) -> str:
        """What Kinesis is asked for: the ARN where it is given, since a stream of another account has to be asked for by it."""
        return self.stream_arn or self.stream

    @property
    def account(self) -> str | None:
        """The account that `streamArn` names, with all that stands before it; None for that of the login."""
        return None if self.stream_arn is None else self.stream_arn.rpartition(":")[0]

    @property
    def where(self) -> str:
        """The region."""
        if self.region is not None:
            return self.region
        assert self.stream_arn is not None
        return self.stream_arn.split(":")[3]

    @property
    def address(self) -> str:
        """The region, and the service where it is not Amazon's."""
        return self.where if self.endpoint is None else f"{self.where} ({self.endpoint})"

    @property
    def shown_in(self) -> str | None:
        """The lease table to which landed positions are written."""
        table = self.lease_table
        if table is None:
            return None
        place = table.region or self.where if table.endpoint is None else table.endpoint
        return f"table {table.table_name} in {place}"

    @property
    def takes_over(self) -> str | None:
        """The lease table, if the stream starts from its leases."""
        return self.shown_in if self.start.from_ is StartFrom.LEASE_TABLE else None

    @property
    def committed_only(self) -> bool:
        """Kinesis has no transactions."""
        return False

    @property
    def batch_records(self) -> int:
        """The maximum number of records of a batch."""
        return self.max_records_per_trigger or DEFAULT_BATCH_RECORDS

    @property
    def batch_bytes(self) -> int:
        """The maximum number of bytes of a batch."""
        return self.max_bytes_per_trigger or DEFAULT_BATCH_BYTES

    def selection(self) -> Selection:
        """Return the data stream, all shards of which are read."""
        return Selection(frozenset({self.stream}))

    def selected(self, origins: Origins) -> tuple[frozenset[Partition], tuple[str, ...]]:
        """Return the shards that exist, and the data stream's name if it does not."""
        if self.stream not in origins:
            return frozenset(), (self.stream,)
        return frozenset(Partition(self.stream, shard) for shard in origins[self.stream]), ()

    def batch_limit(self, interval: timedelta | None) -> str:
        """Return how large a batch may be, in words that are the same as long as the limit is."""
        return f"{self.batch_records} records or {self.batch_bytes} bytes"

    def most_records(self, ranges: Ranges) -> int:
        """Return the limit of a batch: positions do not tell how many records are between them."""
        return self.batch_records if ranges.record_count else 0

    @staticmethod
    def position_text(position: int) -> str:
        """Return a position as Spark's offset log has it."""
        return to_text(position)


SOURCE = KinesisSource
