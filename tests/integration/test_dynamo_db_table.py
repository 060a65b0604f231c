"""The table of a ledger in DynamoDB: it is made, fits or is refused; and what a login needs there.

Against moto's server, a stand-in (testbed/moto_dynamo_db.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exactlyonce.checkpoint.store import Created
from exactlyonce.connectors.dynamo_db.store import TableStore
from exactlyonce.connectors.dynamo_db.table import TableUnfit, require_table
from exactlyonce.dynamo_db.client import Clock
from exactlyonce.errors import StoreForbidden, StoreUnreachable
from exactlyonce.schema.aws_login import AwsLogin
from testbed.dynamo_db import DynamoDb
from tests.dynamo_db_stores import TABLE, client_of, place_on


@pytest.fixture
def fresh_table(dynamo_db: DynamoDb, name: str) -> Iterator[str]:
    table = f"t-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    yield table
    dynamo_db.make_tables_slowly(0)


def test_a_missing_table_is_made_and_waited_for_and_billed_by_request(dynamo_db: DynamoDb, fresh_table: str) -> None:
    waits: list[float] = []
    client = client_of(dynamo_db, clock=Clock(sleep=waits.append))
    place = place_on(dynamo_db, "shop/orders", fresh_table)
    with pytest.raises(StoreUnreachable, match=f"there is no table {fresh_table} in DynamoDB in us-east-1"):
        TableStore(client, place).read("log.json")
    dynamo_db.make_tables_slowly(3)
    require_table(client, place)
    assert waits == [1.0] * 4
    told = dynamo_db.client().describe_table(TableName=fresh_table)["Table"]
    assert (told["TableStatus"], told["BillingModeSummary"]["BillingMode"]) == ("ACTIVE", "PAY_PER_REQUEST")
    require_table(client, place)
    assert TableStore(client, place).create("log.json", b"{}") == Created()


def test_a_table_that_does_not_become_ready_is_left_for_later(dynamo_db: DynamoDb, fresh_table: str) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    dynamo_db.make_tables_slowly(1000)
    client = client_of(dynamo_db, clock=Clock(elapsed_seconds=lambda: now[0], sleep=sleep))
    with pytest.raises(StoreUnreachable, match=f"table {fresh_table} of .* is still being made; it is looked at again"):
        require_table(client, place_on(dynamo_db, "shop/orders", fresh_table))
    assert now[0] <= 60


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ([("id", "HASH", "S")], r"id \(HASH S\)"),
        ([("log", "HASH", "S"), ("name", "RANGE", "N")], r"log \(HASH S\), name \(RANGE N\)"),
        ([("name", "HASH", "S"), ("log", "RANGE", "S")], r"name \(HASH S\), log \(RANGE S\)"),
    ],
    ids=["one key", "another type", "the other way round"],
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
        TableUnfit, match=rf"has the keys {shown}, and a ledger needs the partition key log and the sort"
    ):
        require_table(client_of(dynamo_db), place_on(dynamo_db, "shop/orders", fresh_table))
    assert dynamo_db.items(fresh_table) == []


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DynamoDb, Callable[..., AwsLogin]]]:
    """A service that checks rights; what is returned makes a login with some actions."""
    with DynamoDb(tmp_path_factory.mktemp("guarded")) as service:
        require_table(client_of(service), place_on(service, "x"))
        iam = service.client("iam")

        def login(name: str, *actions: str) -> AwsLogin:
            iam.create_user(UserName=name)
            allowed = {"Effect": "Allow", "Action": [f"dynamodb:{action}" for action in actions], "Resource": "*"}
            document = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
            iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=document)
            key = iam.create_access_key(UserName=name)["AccessKey"]
            return AwsLogin(key["AccessKeyId"], key["SecretAccessKey"])

        logins = {
            "reader": login("reader", "DescribeTable", "GetItem", "Query"),
            "blind": login("blind", "PutItem"),
        }
        service.guard()
        yield service, lambda name: logins[name]


@pytest.mark.parametrize(
    ("who", "action", "act"),
    [
        ("reader", "PutItem", lambda store: store.create("log/1", b"x")),
        ("reader", "DeleteItem", lambda store: store.delete(["log/1"])),
        ("blind", "GetItem", lambda store: store.read("log/1")),
        ("blind", "Query", lambda store: store.names_after("log", "")),
        ("blind", "TransactWriteItems|dynamodb:ConditionCheckItem", lambda store: store.create("log/1", bytes(5000))),
    ],
)
def test_a_login_without_a_right_is_told_which_action_it_lacks(
    guarded: tuple[DynamoDb, Callable[[str], AwsLogin]], who: str, action: str, act: Callable[[TableStore], Any]
) -> None:
    service, login = guarded
    store = TableStore(client_of(service, login(who)), place_on(service, "x"), part_bytes=1000)
    with pytest.raises(
        StoreForbidden, match=rf"the login may not call dynamodb:({action}) on table {TABLE} of DynamoDB"
    ):
        act(store)


def test_a_missing_table_that_may_not_be_made_is_refused_with_what_to_do(
    guarded: tuple[DynamoDb, Callable[[str], AwsLogin]],
) -> None:
    service, login = guarded
    with pytest.raises(
        TableUnfit,
        match=r"There is no table none in DynamoDB in us-east-1.*may not call dynamodb:CreateTable.*Or create it yourself",
    ):
        require_table(client_of(service, login("reader")), place_on(service, "x", "none"))
    with pytest.raises(StoreForbidden, match="may not call dynamodb:DescribeTable"):
        require_table(client_of(service, login("blind")), place_on(service, "x"))


def test_a_login_that_is_unknown_is_told_and_shows_nothing_of_itself(
    guarded: tuple[DynamoDb, Callable[[str], AwsLogin]],
) -> None:
    service, _ = guarded
    client = client_of(service, AwsLogin("AKIAUNKNOWN", "hidden-secret-key"))
    with pytest.raises(StoreForbidden, match="does not accept the login for table") as told:
        TableStore(client, place_on(service, "x")).read("log.json")
    assert "hidden" not in f"{told.value}{client.address!r}"
    assert "AKIA" not in f"{told.value}{client.address!r}"


def test_a_table_with_copies_that_lag_behind_is_refused(dynamo_db: DynamoDb, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto makes no replicas, so the description is changed on its way."""
    client = client_of(dynamo_db)
    api = client._connected(None)  # type: ignore[arg-type]
    described = api.describe_table

    for consistency, fits in (("EVENTUAL", False), (None, False), ("STRONG", True)):

        def with_replicas(consistency: str | None = consistency, **asked: Any) -> dict[str, Any]:
            told = described(**asked)
            replicas = {"Replicas": [{"RegionName": "x"}], "MultiRegionConsistency": consistency}
            return {**told, "Table": {**told["Table"], **replicas}}

        monkeypatch.setattr(api, "describe_table", with_replicas)
        if fits:
            require_table(client, place_on(dynamo_db, "x"))
        else:
            with pytest.raises(TableUnfit, match="is copied to other regions with eventual consistency"):
                require_table(client, place_on(dynamo_db, "x"))
