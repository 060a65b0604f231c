"""Tables: what one has to be, and that it is made where it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from exactlyonce.bounded_text import one_line
from exactlyonce.dynamo_db.answers import TableBusy, TableMissing
from exactlyonce.dynamo_db.client import DynamoDbClient
from exactlyonce.errors import LedgerRefused, StoreForbidden, StoreUnreachable

_READY_SECONDS = 30.0
_POLL_SECONDS = 1.0
_USABLE = {"ACTIVE", "UPDATING"}
_ON_ITS_WAY = {"CREATING"}
_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class TableForm:
    """What a table has to be.

    `holds` is what is kept there, `keys` are the names of its keys, all of type S, with their roles, and `shape` says so in
    words.
    """

    holds: str
    keys: tuple[tuple[str, str], ...]
    shape: str


class TableUnfit(LedgerRefused):
    """The table cannot hold what is kept there as it is, or may not be made."""


def require_table(client: DynamoDbClient, table: str, form: TableForm) -> None:
    """Require that the table is there and holds what is written to it, and make it where it is missing.

    Raises:
        TableUnfit: if its keys are others, or it may not be made.
        StoreForbidden, StoreUnreachable: if it cannot be looked at, or is not ready in time.
    """
    give_up_at = client.clock.elapsed_seconds() + _READY_SECONDS
    made = False
    while True:
        found = _described(client, table)
        if found is None and not made:
            _make(client, table, form)
            made = True
        elif found is not None and _is_ready(found, table, form, client):
            return
        if client.clock.elapsed_seconds() + _POLL_SECONDS > give_up_at:
            raise StoreUnreachable(
                f"table {table} of {client.address.place} is still being made; it is looked at again later."
            )
        client.clock.sleep(_POLL_SECONDS)


def _described(client: DynamoDbClient, table: str) -> Mapping[str, Any] | None:
    """Describe the table; None where there is none, or where one that was made a moment ago is not shown yet."""
    try:
        answer: Mapping[str, Any] = client.call("DescribeTable", table, TableName=table).get("Table") or {}
    except TableMissing:
        return None
    return answer


def _make(client: DynamoDbClient, table: str, form: TableForm) -> None:
    """Make the table. Where somebody else does so at the same moment, this process waits for theirs."""
    try:
        with suppress(TableBusy):
            client.call(
                "CreateTable",
                table,
                TableName=table,
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in form.keys],
                KeySchema=[{"AttributeName": name, "KeyType": role} for name, role in form.keys],
                BillingMode="PAY_PER_REQUEST",
            )
    except StoreForbidden as problem:
        raise TableUnfit(
            f"There is no table {table} in {client.address.place}, and {problem} Or create it yourself, with {form.shape}, "
            f"or correct table or region of {client.address.named_at.table}."
        ) from problem


def _is_ready(found: Mapping[str, Any], table: str, form: TableForm, client: DynamoDbClient) -> bool:
    """Return whether a table that fits can be used now.

    Raises:
        TableUnfit: if it never can, as it is.
    """
    named, named_at = f"Table {table} of {client.address.place}", client.address.named_at.table
    status = _text(found.get("TableStatus"))
    if status in _ON_ITS_WAY:
        return False
    if status not in _USABLE:
        raise TableUnfit(f"{named} is {status}; make it ACTIVE, or name another table in {named_at}.")
    kinds = {
        _text(it.get("AttributeName")): _text(it.get("AttributeType")) for it in _items(found, "AttributeDefinitions")
    }
    keys = [(_text(it.get("AttributeName")), _text(it.get("KeyType"))) for it in _items(found, "KeySchema")]
    if [(name, role, kinds.get(name)) for name, role in keys] != [(name, role, "S") for name, role in form.keys]:
        shown = ", ".join(f"{name} ({role} {kinds.get(name)})" for name, role in keys)[:_MOST_SHOWN]
        raise TableUnfit(
            f"{named} has the keys {shown or 'of no table'}, and {form.holds} needs {form.shape}; name another table in "
            f"{named_at}, or one that is not there, which is then made."
        )
    return True


def _items(found: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [it or {} for it in found.get(name) or ()]


def _text(value: object) -> str:
    return one_line(value or "unknown", _MOST_SHOWN)
