"""What a lease table has to be, and that it is made where it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.kinesis.dynamo_db import NAMED_AT, DynamoDbClient, TableBusy, TableMissing
from exactlyonce.connectors.kinesis.leases import LEASE_KEY
from exactlyonce.errors import LedgerRefused, StoreForbidden, StoreUnreachable

_READY_SECONDS = 30.0
_POLL_SECONDS = 1.0
_USABLE = {"ACTIVE", "UPDATING"}
_ON_ITS_WAY = {"CREATING"}
_MOST_SHOWN = 100
_SHAPE = f"the partition key {LEASE_KEY} of type S and no sort key"


class TableUnfit(LedgerRefused):
    """The table cannot hold leases as it is, or may not be made."""


def require_table(client: DynamoDbClient, table: str) -> None:
    """Require that the table is there and can hold leases, and make it where it is missing.

    Raises:
        TableUnfit: if its keys are others, or it may not be made.
        StoreForbidden, StoreUnreachable: if it cannot be looked at, or is not ready in time.
    """
    give_up_at = client.clock.elapsed_seconds() + _READY_SECONDS
    made = False
    while True:
        found = _described(client, table)
        if found is None and not made:
            _make(client, table)
            made = True
        elif found is not None and _is_ready(found, f"Table {table} of {client.address.place}"):
            return
        if client.clock.elapsed_seconds() + _POLL_SECONDS > give_up_at:
            raise StoreUnreachable(
                f"table {table} of {client.address.place} is still being made; it is looked at again later."
            )
        client.clock.sleep(_POLL_SECONDS)


def _described(client: DynamoDbClient, table: str) -> Mapping[str, Any] | None:
    """Describe the table; None where there is none, or where one that was made a moment ago is not shown yet."""
    try:
        answer: Mapping[str, Any] = client.call("DescribeTable", table).get("Table") or {}
    except TableMissing:
        return None
    return answer


def _make(client: DynamoDbClient, table: str) -> None:
    """Make the table. Where somebody else does so at the same moment, this process waits for theirs."""
    try:
        with suppress(TableBusy):
            client.call(
                "CreateTable",
                table,
                AttributeDefinitions=[{"AttributeName": LEASE_KEY, "AttributeType": "S"}],
                KeySchema=[{"AttributeName": LEASE_KEY, "KeyType": "HASH"}],
                BillingMode="PAY_PER_REQUEST",
            )
    except StoreForbidden as problem:
        raise TableUnfit(
            f"There is no table {table} in {client.address.place}, and {problem} Or create it yourself, with {_SHAPE}, or "
            f"correct table or region of {NAMED_AT}."
        ) from problem


def _is_ready(found: Mapping[str, Any], named: str) -> bool:
    """Return whether a table that fits can be used now.

    Raises:
        TableUnfit: if it never can, as it is.
    """
    status = _text(found.get("TableStatus"))
    if status in _ON_ITS_WAY:
        return False
    if status not in _USABLE:
        raise TableUnfit(f"{named} is {status}; make it ACTIVE, or name another table in {NAMED_AT}.")
    kinds = {
        _text(it.get("AttributeName")): _text(it.get("AttributeType")) for it in _items(found, "AttributeDefinitions")
    }
    keys = [(_text(it.get("AttributeName")), _text(it.get("KeyType"))) for it in _items(found, "KeySchema")]
    if [(name, role, kinds.get(name)) for name, role in keys] != [(LEASE_KEY, "HASH", "S")]:
        shown = ", ".join(f"{name} ({role} {kinds.get(name)})" for name, role in keys)[:_MOST_SHOWN]
        raise TableUnfit(
            f"{named} has the keys {shown or 'of no table'}, and a lease table needs {_SHAPE}; name another table in "
            f"{NAMED_AT}, or one that is not there, which is then made."
        )
    return True


def _items(found: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [it or {} for it in found.get(name) or ()]


def _text(value: object) -> str:
    return one_line(value or "unknown", _MOST_SHOWN)
