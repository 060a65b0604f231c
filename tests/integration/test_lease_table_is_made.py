"""A lease table of Kinesis: it is made, fits or is refused; and what a login needs there.

Against moto's server, a stand-in (testbed/moto_dynamo_db.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exactlyonce.aws.calls import Clock
from exactlyonce.connectors.kinesis.dynamo_db import DynamoDbAddress, DynamoDbClient, connect_to
from exactlyonce.connectors.kinesis.lease_form import TableUnfit
from exactlyonce.connectors.kinesis.lease_marks import Mark
from exactlyonce.connectors.kinesis.lease_plan import CreateLease, MoveLease
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.connectors.kinesis.leases import Checkpoint, Lease
from exactlyonce.errors import StoreForbidden, StoreUnreachable
from exactlyonce.schema.aws_login import AwsLogin
from testbed.dynamo_db import DynamoDb

TABLE = "leases"
LEASE = Lease("shardId-000000000000", Checkpoint("TRIM_HORIZON"))
MOVE = MoveLease(LEASE.key, 0, Checkpoint("LATEST"), Mark(("shop/orders 7 1",), "4959:3"))


def table_on(
    service: DynamoDb, name: str = TABLE, login: AwsLogin | None = None, clock: Clock | None = None
) -> LeaseTable:
    login = login or AwsLogin(service.access_key, service.secret_key)
    address = DynamoDbAddress(service.region, service.endpoint, login)
    return LeaseTable(DynamoDbClient(address, lambda: connect_to(address), clock), name)


@pytest.fixture
def fresh_table(dynamo_db: DynamoDb, name: str) -> Iterator[str]:
    table = f"t-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    yield table
    dynamo_db.make_tables_slowly(0)


def test_a_missing_table_is_made_and_waited_for_and_billed_by_request(dynamo_db: DynamoDb, fresh_table: str) -> None:
    waits: list[float] = []
    table = table_on(dynamo_db, fresh_table, clock=Clock(sleep=waits.append))
    with pytest.raises(StoreUnreachable, match=f"there is no table {fresh_table} in DynamoDB in us-east-1"):
        table.leases()
    dynamo_db.make_tables_slowly(3)
    table.require()
    assert waits == [1.0] * 4
    told = dynamo_db.client().describe_table(TableName=fresh_table)["Table"]
    assert (told["TableStatus"], told["BillingModeSummary"]["BillingMode"]) == ("ACTIVE", "PAY_PER_REQUEST")
    table.require()
    assert table.write(CreateLease(LEASE))


def test_a_table_that_does_not_become_ready_is_left_for_later(dynamo_db: DynamoDb, fresh_table: str) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    dynamo_db.make_tables_slowly(1000)
    table = table_on(dynamo_db, fresh_table, clock=Clock(elapsed_seconds=lambda: now[0], sleep=sleep))
    with pytest.raises(StoreUnreachable, match=f"table {fresh_table} of .* is still being made; it is looked at again"):
        table.require()
    assert now[0] <= 60


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ([("id", "HASH", "S")], r"id \(HASH S\)"),
        ([("leaseKey", "HASH", "N")], r"leaseKey \(HASH N\)"),
        ([("leaseKey", "HASH", "S"), ("name", "RANGE", "S")], r"leaseKey \(HASH S\), name \(RANGE S\)"),
    ],
    ids=["another key", "another type", "a key more"],
)
def test_a_table_with_other_keys_is_refused_and_nothing_is_written(
    dynamo_db: DynamoDb, fresh_table: str, keys: list[tuple[str, str, str]], shown: str
) -> None:
    dynamo_db.client().create_table(
        TableName=fresh_table,
        KeySchema=[{"AttributeName": key, "KeyType": role} for key, role, _ in keys],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key, _, kind in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(
        TableUnfit, match=rf"has the keys {shown}, and a lease table needs the partition key leaseKey of type S"
    ):
        table_on(dynamo_db, fresh_table).require()
    assert dynamo_db.items(fresh_table) == []


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DynamoDb, Callable[..., AwsLogin]]]:
    """A service that checks rights; what is returned makes a login with some actions."""
    with DynamoDb(tmp_path_factory.mktemp("guarded")) as service:
        table_on(service).require()
        iam = service.client("iam")

        def login(name: str, *actions: str) -> AwsLogin:
            iam.create_user(UserName=name)
            allowed = {"Effect": "Allow", "Action": [f"dynamodb:{action}" for action in actions], "Resource": "*"}
            document = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
            iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=document)
            key = iam.create_access_key(UserName=name)["AccessKey"]
            return AwsLogin(key["AccessKeyId"], key["SecretAccessKey"])

        logins = {"reader": login("reader", "DescribeTable", "Scan"), "blind": login("blind", "PutItem")}
        service.guard()
        yield service, lambda name: logins[name]


@pytest.mark.parametrize(
    ("who", "action", "act"),
    [
        ("reader", "PutItem", lambda table: table.write(CreateLease(LEASE))),
        ("reader", "UpdateItem", lambda table: table.write(MOVE)),
        ("blind", "Scan", lambda table: table.leases()),
        ("blind", "DescribeTable", lambda table: table.require()),
    ],
)
def test_a_login_without_a_right_is_told_which_action_it_lacks(
    guarded: tuple[DynamoDb, Callable[[str], AwsLogin]], who: str, action: str, act: Callable[[LeaseTable], Any]
) -> None:
    service, login = guarded
    with pytest.raises(StoreForbidden, match=rf"the login may not call dynamodb:{action} on table {TABLE} of DynamoDB"):
        act(table_on(service, login=login(who)))


def test_a_missing_table_that_may_not_be_made_is_refused_with_what_to_do(
    guarded: tuple[DynamoDb, Callable[[str], AwsLogin]],
) -> None:
    service, login = guarded
    with pytest.raises(
        TableUnfit,
        match=r"There is no table none in DynamoDB in us-east-1.*may not call dynamodb:CreateTable.*Or create it yourself",
    ):
        table_on(service, "none", login("reader")).require()


def test_a_login_that_is_unknown_is_told_and_shows_nothing_of_itself(
    guarded: tuple[DynamoDb, Callable[[str], AwsLogin]],
) -> None:
    service, _ = guarded
    table = table_on(service, login=AwsLogin("AKIAUNKNOWN", "hidden-secret-key"))
    with pytest.raises(StoreForbidden, match="does not accept the login for table") as told:
        table.leases()
    assert "hidden" not in f"{told.value}{table._client.address!r}"
    assert "AKIA" not in f"{told.value}{table._client.address!r}"
