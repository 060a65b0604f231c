"""DynamoDB as a ledger outside of Spark: where it is, and what opens it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from weakref import WeakValueDictionary

from exactlyonce.connectors.dynamo_db.client import DynamoDbAddress, DynamoDbClient, dynamo_db_client
from exactlyonce.connectors.dynamo_db.ledger import DynamoDbLedger
from exactlyonce.connectors.dynamo_db.spec import DynamoDbLedger as LedgerInATable
from exactlyonce.connectors.dynamo_db.store import TableStore
from exactlyonce.connectors.dynamo_db.table import require_table
from exactlyonce.connectors.object_log.fleet import ObjectLogFleet
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.errors import SecretMissing
from exactlyonce.ledger.connector import Use
from exactlyonce.schema.aws_login import ACCESS_KEY, SECRET_KEY, AwsLogin, login_in
from exactlyonce.schema.places import TablePlace

Parameters = tuple[tuple[str, str], ...]
_NAMED_AT = "spec.ledger.dynamoDb.secretRef"
_REGION, _TABLE, _KEY, _ENDPOINT = "region", "table", "partitionKey", "endpoint"


@dataclass(frozen=True)
class DynamoDbLedgerAddress:
    """The part of a table that a log is in, and the login.

    `server` holds both: a log is asked alone, since no request is about two of them.
    """

    place: TablePlace
    login: AwsLogin | None = field(repr=False)

    @property
    def server(self) -> Parameters:
        """The part of the table and the login."""
        named = {
            _REGION: self.place.region,
            _TABLE: self.place.table,
            _KEY: self.place.partition_key,
            _ENDPOINT: self.place.endpoint,
        }
        if self.login is not None:
            named |= self.login.as_secret()
        return tuple(sorted((key, value) for key, value in named.items() if value))

    @property
    def key(self) -> Hashable:
        """The part of the table and the login."""
        return self.server

    @property
    def space(self) -> str:
        """The part of the table."""
        return self.shown

    @property
    def shown(self) -> str:
        """The part of the table."""
        return self.place.location

    def store_name(self, namespace: str) -> str:
        """Return the name of the table: all of its logs fail together."""
        return f"Ledgers at {_server_name(self.place)} of namespace {namespace}"

    def open(self, application: str = "exactlyonce", use: Use = Use.PASSES) -> DynamoDbLedger:
        """Return the ledger. Each request has the same limit for every use, and none waits for another transaction."""
        return DynamoDbLedger(_log_at(self.server), partial(require_table, _client_of(self), self.place))


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
        return DynamoDbLedgerAddress(spec.folder, login)

    def fleet(self, server: Parameters, shown: str) -> ObjectLogFleet:
        """Return one log as the monitor asks it."""
        address = _address_of(server)
        return ObjectLogFleet(_log_at(server), _store_of(address), _server_name(address.place))


_LOGS: WeakValueDictionary[Parameters, ObjectLog] = WeakValueDictionary()
_GUARD = Lock()


def _log_at(server: Parameters) -> ObjectLog:
    """Return the log in a part of a table: the one that this process has open, so that each entry is read and kept once."""
    with _GUARD:
        found = _LOGS.get(server)
        if found is None:
            found = _LOGS[server] = ObjectLog(_store_of(_address_of(server)))
        return found


def _address_of(server: Parameters) -> DynamoDbLedgerAddress:
    named = dict(server)
    place = TablePlace(named[_REGION], named[_TABLE], named[_KEY], named.get(_ENDPOINT))
    return DynamoDbLedgerAddress(place, login_in(named, _NAMED_AT))


def _store_of(address: DynamoDbLedgerAddress) -> TableStore:
    return TableStore(_client_of(address), address.place)


def _client_of(address: DynamoDbLedgerAddress) -> DynamoDbClient:
    place = address.place
    return dynamo_db_client(DynamoDbAddress(place.region, place.endpoint, address.login))


def _server_name(place: TablePlace) -> str:
    """Return what fails together: a table."""
    return f"{place.endpoint or 'DynamoDB'} in {place.region} table {place.table}"


LEDGER = DynamoDbConnector()
