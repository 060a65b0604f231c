"""What a resource may not say of a Kinesis source: each case with its sentence."""

from __future__ import annotations

from tests.resource_documents import DELETING, GONE, Changes, Refused

SHARD = "shardId-000000000000"
SOURCE = "spec.source.kinesis"


def _kinesis(**fields: object) -> Changes:
    """Return the changes that make the source a data stream with these fields; one that is None is left out."""
    given = {"streamName": "orders", "region": "eu-central-1", **fields}
    return {"spec.source.kafka": GONE, SOURCE: {name: value for name, value in given.items() if value is not None}}


REFUSED_KINESIS = (
    Refused(
        "the output of a former query, and every record that the shards hold",
        {**_kinesis(), "spec.sink": {"files": {"path": "/lake/rows", "continueAfterBatch": 12}}},
        "spec",
        "sink.files.continueAfterBatch needs source.kinesis.start to say where that batch ends: TrimHorizon would read again",
    ),
    Refused(
        "two sources",
        {SOURCE: {"streamName": "orders", "region": "eu-central-1"}},
        "spec.source",
        "give exactly one of: kafka, kinesis",
    ),
    Refused(
        "a data stream without a name", _kinesis(streamName=None), SOURCE, "give exactly one of: streamName, streamArn"
    ),
    Refused("a data stream without a region", _kinesis(region=None), SOURCE, "region belongs to streamName"),
    Refused(
        "an ARN and a region",
        _kinesis(streamName=None, streamArn="arn:aws:kinesis:eu-central-1:123456789012:stream/orders"),
        SOURCE,
        "region belongs to streamName",
    ),
    Refused(
        "a data stream with a space", _kinesis(streamName="or ders"), f"{SOURCE}.streamName", "write a stream's name"
    ),
    Refused(
        "an ARN of a topic",
        _kinesis(streamName=None, region=None, streamArn="arn:aws:sns:eu-central-1:123456789012:orders"),
        f"{SOURCE}.streamArn",
        "write the stream's ARN",
    ),
    Refused(
        "a rule for records outside of their shard that there is not",
        _kinesis(outsideShardRange="Skip"),
        f"{SOURCE}.outsideShardRange",
        "Keep",
    ),
    Refused(
        "a moment with TrimHorizon",
        _kinesis(start={"timestamp": "2026-01-31T00:00:00Z"}),
        f"{SOURCE}.start",
        "timestamp belongs to from: Timestamp",
    ),
    Refused(
        "Positions without any", _kinesis(start={"from": "Positions"}), f"{SOURCE}.start", "positions belongs to from"
    ),
    Refused(
        "a position of a partition",
        _kinesis(start={"from": "Positions", "positions": {"0": "TRIM_HORIZON"}}),
        f"{SOURCE}.start.positions",
        "name shards as Kinesis does",
    ),
    Refused(
        "a position with zeros in front",
        _kinesis(start={"from": "Positions", "positions": {SHARD: "after 007"}}),
        f"{SOURCE}.start.positions",
        "with no zeros in front",
    ),
    Refused(
        "a position without a sequence number",
        _kinesis(start={"from": "Positions", "positions": {SHARD: "LATEST"}}),
        f"{SOURCE}.start.positions",
        "write TRIM_HORIZON, SHARD_END, after <sequence number>",
    ),
    Refused(
        "leases without their table",
        _kinesis(start={"from": "LeaseTable"}),
        SOURCE,
        "start from: LeaseTable needs leaseTable",
    ),
    Refused(
        "a lease table without a name",
        _kinesis(leaseTable={"region": "eu-central-1"}),
        "leaseTable.tableName",
        "required",
        on_server="Required value",
    ),
    Refused(
        "a lease table with a slash",
        _kinesis(leaseTable={"tableName": "shop/orders"}),
        "leaseTable.tableName",
        "write a table's name",
    ),
    Refused(
        "a batch of no records", _kinesis(maxRecordsPerTrigger=0), "maxRecordsPerTrigger", "greater than or equal to 1"
    ),
    Refused(
        "single records of shards",
        {**_kinesis(), "spec.recovery.onPoisonBatch": "Bisect"},
        "spec",
        "recovery.onPoisonBatch: Bisect is not for source.kinesis, whose positions count no records",
    ),
    Refused("a batch of no bytes", _kinesis(maxBytesPerTrigger=0), "maxBytesPerTrigger", "greater than or equal to 1"),
    Refused(
        "deletions from Kinesis",
        {**DELETING, **_kinesis()},
        "spec",
        "source.format.onTombstone: Delete is for Kafka",
    ),
    Refused(
        "a transaction for each shard",
        {**_kinesis(), "spec.sink.postgres.commit": "Partition"},
        "spec",
        "sink.postgres.commit: Partition is not for source.kinesis",
    ),
)
