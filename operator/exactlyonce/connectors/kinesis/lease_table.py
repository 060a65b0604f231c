"""The lease table of a KCL application, in DynamoDB: all of its leases are read, and single ones written on a condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from exactlyonce.bounded_json import MALFORMED
from exactlyonce.connectors.kinesis.client import MOST_SHARDS
from exactlyonce.connectors.kinesis.dynamo_db import NAMED_AT, ConditionFailed, DynamoDbClient
from exactlyonce.connectors.kinesis.lease_form import TableUnfit, require_table
from exactlyonce.connectors.kinesis.lease_marks import attributes_of
from exactlyonce.connectors.kinesis.lease_plan import CreateLease, LeaseWrite, MoveLease
from exactlyonce.connectors.kinesis.leases import (
    CHECKPOINT,
    CHILDREN,
    COUNTER,
    LEASE_KEY,
    OF_A_WORKER,
    SUB_SEQUENCE,
    SWITCHES,
    Lease,
    NotALease,
    item_of,
    lease_of,
)
from exactlyonce.errors import StoreUnreachable

_MOST_ITEMS = 2 * MOST_SHARDS
"""Beside its leases, a table holds those of shards that expired lately, and what newer releases of KCL keep there."""

_MOST_CHARACTERS = 8 << 20
"""Of the workers and shards in all leases together, which the operator keeps: twice what KCL writes for MOST_SHARDS of them."""

_LISTING_SECONDS = 30.0
"""A server that sends empty pages for ever may be slow with each: a pass that continues for too long ends the operator."""


class LeaseTable:
    """One lease table; threads may share it. Its methods raise as `DynamoDbClient.call` does."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    @property
    def place(self) -> str:
        """The table in words."""
        return f"table {self._table} of {self._client.address.place}"

    def require(self) -> None:
        """Require that the table can hold leases, and make it where it is missing; it may take half a minute.

        Raises:
            TableUnfit: if it has other keys, or may not be made.
            StoreForbidden, StoreUnreachable: if it cannot be looked at, or is not ready in time.
        """
        require_table(self._client, self._table)

    def leases(self) -> dict[str, Lease]:
        """Return all leases, by shard.

        Raises:
            TableUnfit: if something else is in the table.
            TableMissing: if there is no table.
            StoreUnreachable: if the list has not ended in time.
        """
        found: dict[str, Lease] = {}
        asked: dict[str, Any] = {"ConsistentRead": True}
        items, characters, clock = 0, 0, self._client.clock
        give_up_at = clock.elapsed_seconds() + _LISTING_SECONDS
        while True:
            answer = self._client.call("Scan", self._table, **asked)
            page = _items(answer)
            items += len(page)
            if items > _MOST_ITEMS:
                raise TableUnfit(
                    f"T{self.place[1:]} has more than {_MOST_ITEMS:,} items, which no lease table has; {_ANOTHER}"
                )
            for lease in map(self._lease, page):
                if lease is not None:
                    found[lease.key] = lease
                    characters += _characters_in(lease)
            if characters > _MOST_CHARACTERS:
                raise TableUnfit(
                    f"T{self.place[1:]} has more than {_MOST_CHARACTERS:,} characters of workers and shards in its leases, "
                    f"which no lease table has; {_ANOTHER}"
                )
            if not answer.get("LastEvaluatedKey"):
                return found
            if clock.elapsed_seconds() > give_up_at:
                raise StoreUnreachable(
                    f"{self._client.address.place} did not list the leases in table {self._table} within "
                    f"{_LISTING_SECONDS:.0f} s; it named {items} and has more. If this continues, correct "
                    f"{NAMED_AT}.endpoint."
                )
            asked["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def write(self, write: LeaseWrite) -> bool:
        """Write a lease; return whether its condition held: else somebody, maybe this process, has written it meanwhile."""
        try:
            match write:
                case CreateLease(lease):
                    self._client.call(
                        "PutItem",
                        self._table,
                        Item=item_of(lease),
                        ConditionExpression="attribute_not_exists(#key)",
                        ExpressionAttributeNames={"#key": LEASE_KEY},
                    )
                case MoveLease():
                    self._client.call("UpdateItem", self._table, **_update(write))
                case _:
                    assert_never(write)
        except ConditionFailed:
            return False
        return True

    def _lease(self, item: Mapping[str, Any]) -> Lease | None:
        try:
            return lease_of(item)
        except NotALease as problem:
            raise TableUnfit(
                f"T{self.place[1:]} is not the lease table of one stream: {problem}; {_ANOTHER}"
            ) from problem


_ANOTHER = f"name another table in {NAMED_AT}."


def _update(move: MoveLease) -> dict[str, Any]:
    """Return the arguments by which a lease moves, if its counter is still the one that was read and it is not at its end."""
    values: dict[str, Any] = {
        CHECKPOINT: {"S": move.checkpoint.sequence_number},
        SUB_SEQUENCE: {"N": str(move.checkpoint.sub_sequence_number)},
        COUNTER: {"N": str(move.counter + 1)},
        SWITCHES: {"N": "0"},
        **attributes_of(move.mark),
    }
    if move.children:
        values[CHILDREN] = {"SS": sorted(move.children)}
    names = {f"#{name}": name for name in (*values, *OF_A_WORKER)}
    sets = ", ".join(f"#{name} = :{name}" for name in values)
    removes = ", ".join(f"#{name}" for name in OF_A_WORKER)
    return {
        "Key": {LEASE_KEY: {"S": move.key}},
        "UpdateExpression": f"SET {sets} REMOVE {removes}",
        "ConditionExpression": f"#{COUNTER} = :before AND #{CHECKPOINT} <> :end",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {
            **{f":{name}": value for name, value in values.items()},
            ":before": {"N": str(move.counter)},
            ":end": {"S": "SHARD_END"},
        },
    }


def _characters_in(lease: Lease) -> int:
    """Return how long the texts are whose length is up to whoever wrote the lease."""
    marks = () if lease.mark is None else lease.mark.streams
    return sum(map(len, (lease.owner or "", *lease.parents, *lease.children, *marks)))


def _items(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    try:
        return [item or {} for item in answer.get("Items") or ()]
    except MALFORMED:
        return []
