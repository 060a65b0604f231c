"""DynamoDB as a ledger outside of Spark: where it is, and what opens it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from exactlyonce.connectors.dynamo_db.ledger import DynamoDbLedger
from exactlyonce.connectors.dynamo_db.spec import DynamoDbLedger as LedgerInATable
from exactlyonce.connectors.dynamo_db.store import TableStore
from exactlyonce.connectors.dynamo_db.table import require_table
from exactlyonce.connectors.object_log.fleet import ObjectLogFleet
from exactlyonce.connectors.object_log.open_logs import LogAddress, OpenLogs, Parameters
from exactlyonce.dynamo_db.client import DynamoDbAddress, DynamoDbClient, dynamo_db_client
from exactlyonce.errors import SecretMissing
from exactlyonce.ledger.connector import Use
from exactlyonce.schema.aws_login import ACCESS_KEY, SECRET_KEY, login_in
from exactlyonce.schema.places import TablePlace

_NAMED_AT = "spec.ledger.dynamoDb.secretRef"
_REGION, _TABLE, _KEY, _ENDPOINT = "region", "table", "partitionKey", "endpoint"


class DynamoDbLedgerAddress(LogAddress):
    """The part of a table that a log is in, and the login."""

    def store_name(self, namespace: str) -> str:
        """Return the name of the table: all of its logs fail together."""
        return f"Ledgers at {_server_name(self.server)} of namespace {namespace}"

    def open(self, application: str = "exactlyonce", use: Use = Use.PASSES) -> DynamoDbLedger:
        """Return the ledger. Each request has the same limit for every use, and none waits for another transaction."""
        table = partial(require_table, _client_of(self.server), _place_of(self.server))
        return DynamoDbLedger(_LOGS.at(self.server), table)


class DynamoDbConnector:
    """DynamoDB."""

    def address(self, spec: object, secret: Mapping[str, str]) -> DynamoDbLedgerAddress:
        """Return the log in a table.

        Raises:
            SecretMissing: if the secret that the stream names holds no login, or one half of one.
        """
        assert isinstance(spec, LedgerInATable), "the registry gives each connector its own spec"
        login = login_in(secret, _NAMED_AT)
        if login is None and spec.secret_ref is not None:
            raise SecretMissing(
                f"The secret {spec.secret_ref.name} that {_NAMED_AT} names holds no login; give {ACCESS_KEY} and {SECRET_KEY}, "
                "or leave secretRef out to use the login of the process."
            )
        place = spec.folder
        named = {_REGION: place.region, _TABLE: place.table, _KEY: place.partition_key, _ENDPOINT: place.endpoint}
        if login is not None:
            named |= login.as_secret()
        server = tuple(sorted((key, value) for key, value in named.items() if value))
        return DynamoDbLedgerAddress(server, place.location)

    def fleet(self, server: Parameters, shown: str) -> ObjectLogFleet:
        """Return one log as the monitor asks it."""
        return ObjectLogFleet(_LOGS.at(server), _store_of(server), _server_name(server))


def _place_of(server: Parameters) -> TablePlace:
    named = dict(server)
    return TablePlace(named[_REGION], named[_TABLE], named[_KEY], named.get(_ENDPOINT))


def _client_of(server: Parameters) -> DynamoDbClient:
    place = _place_of(server)
    return dynamo_db_client(DynamoDbAddress(place.region, place.endpoint, login_in(dict(server), _NAMED_AT)))


def _store_of(server: Parameters) -> TableStore:
    return TableStore(_client_of(server), _place_of(server))


def _server_name(server: Parameters) -> str:
    """Return what fails together: a table."""
    place = _place_of(server)
    return f"{place.endpoint or 'DynamoDB'} in {place.region} table {place.table}"


_LOGS = OpenLogs(_store_of)
LEDGER = DynamoDbConnector()
