"""The lease table of KCL on DynamoDB: made, read, written on a condition, refused where it is another table.

Against moto's server, a stand-in.
"""

from __future__ import annotations

from typing import Any

import pytest

from exactlyonce.connectors.kinesis.dynamo_db import DynamoDbAddress, TableMissing, dynamo_db_client
from exactlyonce.connectors.kinesis.lease_form import TableUnfit
from exactlyonce.connectors.kinesis.lease_marks import Mark
from exactlyonce.connectors.kinesis.lease_plan import CreateLease, MoveLease
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.connectors.kinesis.leases import Checkpoint, Lease
from exactlyonce.schema.aws_login import AwsLogin
from testbed.dynamo_db import DynamoDb

SHARD = "shardId-000000000000"
LEASE = Lease(
    SHARD,
    Checkpoint("49590338271490256608559692538361571095921575989136588898", 3),
    parents=frozenset({"shardId-000000000008", "shardId-000000000009"}),
    hash_keys=(0, (1 << 128) - 1),
    mark=Mark(("shop/orders 7 1", "shop/orders 7 0"), "4959:3"),
)
NEXT = Mark(("shop/orders 7 1",), "4959:9")


@pytest.fixture
def table_name(name: str) -> str:
    return f"leases-{abs(hash(name))}"


def table_on(service: DynamoDb, name: str) -> LeaseTable:
    login = AwsLogin(service.access_key, service.secret_key)
    return LeaseTable(dynamo_db_client(DynamoDbAddress(service.region, service.endpoint, login)), name)


def put(service: DynamoDb, table: str, **changes: Any) -> None:
    """Write what a worker of KCL would."""
    for name, value in changes.items():
        service.client().update_item(
            TableName=table,
            Key={"leaseKey": {"S": SHARD}},
            UpdateExpression="SET #name = :value",
            ExpressionAttributeNames={"#name": name},
            ExpressionAttributeValues={":value": value},
        )


def test_a_missing_table_is_made_and_leases_are_written_only_as_they_were_read(
    dynamo_db: DynamoDb, table_name: str
) -> None:
    table = table_on(dynamo_db, table_name)
    with pytest.raises(TableMissing, match=r"endpoint of spec\.source\.kinesis\.leaseTable"):
        table.leases()
    table.require()
    assert table.leases() == {}
    assert table.write(CreateLease(LEASE))
    assert not table.write(CreateLease(Lease(SHARD, Checkpoint("TRIM_HORIZON"))))
    assert table.leases() == {SHARD: LEASE}
    # A worker takes the lease, and then is gone: a stream moves what it has read.
    put(dynamo_db, table_name, leaseOwner={"S": "w"}, leaseCounter={"N": "4"}, pendingCheckpoint={"S": "LATEST"})
    put(dynamo_db, table_name, throughputKBps={"N": "0.5"})
    ahead = MoveLease(SHARD, 3, Checkpoint("49590338271490256608559692538361571095921575989136588999", 0), NEXT)
    assert not table.write(ahead), "the worker has renewed it since it was read"
    assert table.write(MoveLease(SHARD, 4, Checkpoint("SHARD_END"), NEXT, frozenset({"shardId-000000000011"})))
    (item,) = dynamo_db.items(table_name)
    assert item == {
        "leaseKey": {"S": SHARD},
        "leaseCounter": {"N": "5"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": "SHARD_END"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "parentShardId": {"SS": ["shardId-000000000008", "shardId-000000000009"]},
        "childShardIds": {"SS": ["shardId-000000000011"]},
        "startingHashKey": {"S": "0"},
        "endingHashKey": {"S": "340282366920938463463374607431768211455"},
        "throughputKBps": {"N": "0.5"},
        "exactlyonceStreams": {"L": [{"S": "shop/orders 7 1"}]},
        "exactlyonceCheckpoint": {"S": "4959:9"},
    }
    assert not table.write(MoveLease(SHARD, 5, Checkpoint("TRIM_HORIZON"), NEXT)), (
        "a lease is never moved from its shard's end"
    )


def test_leases_of_more_than_a_page_are_read(dynamo_db: DynamoDb, table_name: str) -> None:
    table = table_on(dynamo_db, table_name)
    table.require()
    leases = [Lease(f"shardId-{number:012}", Checkpoint("TRIM_HORIZON"), owner="w" * 60_000) for number in range(30)]
    for lease in leases:
        assert table.write(CreateLease(lease))
        dynamo_db.client().update_item(
            TableName=table_name,
            Key={"leaseKey": {"S": lease.key}},
            UpdateExpression="SET leaseOwner = :owner",
            ExpressionAttributeValues={":owner": {"S": lease.owner}},
        )
    assert "LastEvaluatedKey" in dynamo_db.client().scan(TableName=table_name, ConsistentRead=True), (
        "one page holds all"
    )
    assert table.leases() == {lease.key: lease for lease in leases}


def test_a_table_of_something_else_is_refused(dynamo_db: DynamoDb, table_name: str) -> None:
    dynamo_db.client().create_table(
        TableName=table_name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    table = table_on(dynamo_db, table_name)
    with pytest.raises(TableUnfit, match=r"keys id \(HASH S\), and a lease table needs the partition key leaseKey"):
        table.require()
    dynamo_db.client().put_item(TableName=table_name, Item={"id": {"S": "order 7"}})
    with pytest.raises(TableUnfit, match=r"is not the lease table of one stream: the item \? has no leaseKey"):
        table.leases()
    assert dynamo_db.items(table_name) == [{"id": {"S": "order 7"}}]
