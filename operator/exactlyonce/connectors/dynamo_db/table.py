"""The table of a ledger: what it has to be, and that it is made where it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.dynamo_db.answers import TableBusy, TableMissing
from exactlyonce.connectors.dynamo_db.client import DynamoDbClient
from exactlyonce.connectors.dynamo_db.items import LOG, NAME
from exactlyonce.errors import LedgerRefused, StoreForbidden, StoreUnreachable
from exactlyonce.schema.places import TablePlace

_READY_SECONDS = 30.0
_POLL_SECONDS = 1.0
_USABLE = {"ACTIVE", "UPDATING"}
_ON_ITS_WAY = {"CREATING"}
_KEYS = [(LOG, "HASH", "S"), (NAME, "RANGE", "S")]
_SHAPE = f"the partition key {LOG} and the sort key {NAME}, both of type S"
_MOST_SHOWN = 100


class TableUnfit(LedgerRefused):
    """The table cannot hold a ledger as it is, or may not be made."""


def require_table(client: DynamoDbClient, place: TablePlace) -> None:
    """Require that the table is there and holds what is written to it, and make it where it is missing.

    Raises:
        TableUnfit: if its keys are others, its copies in other regions lag behind, or it may not be made.
        StoreForbidden, StoreUnreachable: if it cannot be looked at, or is not ready in time.
    """
    give_up_at = client.clock.elapsed_seconds() + _READY_SECONDS
    made = False
    while True:
        found = _described(client, place)
        if found is None and not made:
            _make(client, place)
            made = True
        elif found is not None and _is_ready(found, place, client.address.place):
            return
        if client.clock.elapsed_seconds() + _POLL_SECONDS > give_up_at:
            raise StoreUnreachable(
                f"table {place.table} of {client.address.place} is still being made; it is looked at again later."
            )
        client.clock.sleep(_POLL_SECONDS)


def _described(client: DynamoDbClient, place: TablePlace) -> Mapping[str, Any] | None:
    """Describe the table; None where there is none, or where one that was made a moment ago is not shown yet."""
    try:
        answer: Mapping[str, Any] = client.call("DescribeTable", place.table, TableName=place.table).get("Table") or {}
    except TableMissing:
        return None
    return answer


def _make(client: DynamoDbClient, place: TablePlace) -> None:
    """Make the table. Where somebody else does so at the same moment, this process waits for theirs."""
    try:
        with suppress(TableBusy):
            client.call(
                "CreateTable",
                place.table,
                TableName=place.table,
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, _, kind in _KEYS],
                KeySchema=[{"AttributeName": name, "KeyType": role} for name, role, _ in _KEYS],
                BillingMode="PAY_PER_REQUEST",
            )
    except StoreForbidden as problem:
        raise TableUnfit(
            f"There is no table {place.table} in {client.address.place}, and {problem} Or create it yourself, with {_SHAPE}, "
            "or correct table or region of spec.ledger.dynamoDb."
        ) from problem


def _is_ready(found: Mapping[str, Any], place: TablePlace, where: str) -> bool:
    """Return whether a table that fits can be used now.

    Raises:
        TableUnfit: if it never can, as it is.
    """
    named = f"Table {place.table} of {where}"
    status = _text(found.get("TableStatus"))
    if status in _ON_ITS_WAY:
        return False
    if status not in _USABLE:
        raise TableUnfit(f"{named} is {status}; make it ACTIVE, or name another table in spec.ledger.dynamoDb.")
    kinds = {
        _text(it.get("AttributeName")): _text(it.get("AttributeType")) for it in _items(found, "AttributeDefinitions")
    }
    keys = [(_text(it.get("AttributeName")), _text(it.get("KeyType"))) for it in _items(found, "KeySchema")]
    if [(name, role, kinds.get(name)) for name, role in keys] != _KEYS:
        shown = ", ".join(f"{name} ({role} {kinds.get(name)})" for name, role in keys)[:_MOST_SHOWN]
        raise TableUnfit(
            f"{named} has the keys {shown or 'of no table'}, and a ledger needs {_SHAPE}; name another table in "
            "spec.ledger.dynamoDb, or one that is not there, which is then made."
        )
    if _items(found, "Replicas") and found.get("MultiRegionConsistency") != "STRONG":
        raise TableUnfit(
            f"{named} is copied to other regions with eventual consistency, where the last writer wins: two operators could "
            "each create one entry. Name a table without replicas, or one with multi-region strong consistency."
        )
    return True


def _items(found: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [it or {} for it in found.get(name) or ()]


def _text(value: object) -> str:
    return one_line(value or "unknown", _MOST_SHOWN)
