"""Tables and parts of them on a DynamoDB service for tests."""

from __future__ import annotations

from functools import lru_cache, partial

from exactlyonce.dynamo_db.client import Clock, DynamoDbAddress, DynamoDbClient, _connect
from exactlyonce.schema.aws_login import AwsLogin
from exactlyonce.schema.places import TablePlace
from testbed.dynamo_db import DynamoDb

TABLE = "ledgers"
"""The table of the shared service: each test has a value of the partition key of its own there."""

connected = lru_cache(_connect)
"""Making a client takes longer than a request, and it holds nothing of a test."""


def client_of(
    service: DynamoDb, login: AwsLogin | None = None, clock: Clock | None = None, endpoint: str | None = None
) -> DynamoDbClient:
    """Return a client of a service, or of what stands before it at another endpoint."""
    login = login or AwsLogin(service.access_key, service.secret_key)
    address = DynamoDbAddress(service.region, endpoint or service.endpoint, login)
    return DynamoDbClient(address, partial(connected, address), clock)


def place_on(service: DynamoDb, name: str, table: str = TABLE) -> TablePlace:
    """Return the items of a table that have one value of the partition key."""
    return TablePlace(service.region, table, name, service.endpoint)
