"""The items of one log in a table: those with one value of the partition key, by name; each request is one of DynamoDB's.

    log (partition key)   the stream's own value
    name (sort key)       <log id>/000000000001.entry, as the path of an object
    content               what the object holds; not there where it is too large for an item
    size                  how many bytes that is
    upload                which upload holds the content of a large object (`uploads.py`)

Every read is strongly consistent: an eventually consistent one may lack an entry that somebody has built upon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactlyonce.bounded_json import MALFORMED
from exactlyonce.checkpoint.store import require_few
from exactlyonce.connectors.object_log.documents import LogDamaged
from exactlyonce.connectors.object_log.values import optional, text
from exactlyonce.dynamo_db.client import DynamoDbClient
from exactlyonce.errors import StoreUnreachable
from exactlyonce.schema.places import TablePlace

LOG, NAME, CONTENT, SIZE, UPLOAD = "log", "name", "content", "size", "upload"
OBJECT, STARTED = "object", "started"
"""Of the first item of an upload: which object it is for, and when it was begun, in seconds."""

_MOST_PAGES = 20_000
"""An answer has up to 1 MB. A server that says for ever that there is more is left."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item, as far as it was asked for."""

    name: str
    size: int | None = None
    content: bytes | None = None
    upload: str | None = None
    object_name: str | None = None
    started: int | None = None


class LogItems:
    """The items of one log; threads may share it. Its methods raise as `DynamoDbClient.call` does."""

    def __init__(self, client: DynamoDbClient, place: TablePlace) -> None:
        self.client = client
        self.place = place

    def get(self, name: str) -> Item | None:
        """Return an item, or None."""
        answer = self._call("GetItem", Key=self._key(name), ConsistentRead=True)
        return self._item(answer["Item"]) if answer.get("Item") else None

    def between(
        self, first: str, last: str, attributes: Sequence[str] = (), limit: int | None = None
    ) -> Iterator[Item]:
        """Yield the items from one name to another, both included, in order, with their names and these attributes."""
        names = {f"#{attribute}": attribute for attribute in (LOG, NAME, *attributes)}
        asked: dict[str, Any] = {
            "ConsistentRead": True,
            "KeyConditionExpression": f"#{LOG} = :log AND #{NAME} BETWEEN :first AND :last",
            "ProjectionExpression": ", ".join(f"#{attribute}" for attribute in (NAME, *attributes)),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {
                ":log": {"S": self.place.partition_key},
                ":first": {"S": first},
                ":last": {"S": last},
            },
        }
        if limit is not None:
            asked["Limit"] = limit
        found = 0
        for _ in range(_MOST_PAGES):
            answer = self._call("Query", **asked)
            for item in answer.get("Items", ()):
                found += 1
                require_few(found, self.place.location)
                yield self._item(item)
            if limit is not None or not answer.get("LastEvaluatedKey"):
                return
            asked["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        raise StoreUnreachable(f"The list of the items at {self.place.location} does not end.")

    def put(self, item: Item, *, is_idempotent: bool = True) -> None:
        """Write an item whatever is there."""
        self._call("PutItem", is_idempotent=is_idempotent, Item=self._attributes(item))

    def create(self, item: Item) -> None:
        """Write an item if its name is free; ConditionFailed otherwise."""
        self._call("PutItem", Item=self._attributes(item), **_name_is_free())

    def delete(self, name: str) -> Item | None:
        """Delete an item and return what it was."""
        answer = self._call("DeleteItem", Key=self._key(name), ReturnValues="ALL_OLD")
        return self._item(answer["Attributes"]) if answer.get("Attributes") else None

    def create_if_there(self, item: Item, other: str) -> None:
        """Write an item if its name is free, and another item is there, at one moment.

        Raises:
            ConditionFailed: with 0 if the other one is not there, and 1 if the name is taken.
        """
        is_there = {"ConditionExpression": f"attribute_exists(#{NAME})", "ExpressionAttributeNames": {f"#{NAME}": NAME}}
        check = {"TableName": self.place.table, "Key": self._key(other), **is_there}
        put = {"TableName": self.place.table, "Item": self._attributes(item), **_name_is_free()}
        self._transact({"ConditionCheck": check}, {"Put": put})

    def delete_unless_named(self, name: str, by: str, upload: str) -> None:
        """Delete an item unless another item, `by`, names an upload, at one moment; ConditionFailed if it does."""
        check = {
            "TableName": self.place.table,
            "Key": self._key(by),
            "ConditionExpression": f"attribute_not_exists(#{UPLOAD}) OR #{UPLOAD} <> :upload",
            "ExpressionAttributeNames": {f"#{UPLOAD}": UPLOAD},
            "ExpressionAttributeValues": {":upload": {"S": upload}},
        }
        delete = {"TableName": self.place.table, "Key": self._key(name)}
        self._transact({"ConditionCheck": check}, {"Delete": delete})

    def where(self, name: str) -> str:
        """Return what a person calls an item."""
        return f"{self.place.location}/{name}"

    def _transact(self, *parts: Mapping[str, Any]) -> None:
        self.client.call("TransactWriteItems", self.place.table, TransactItems=list(parts))

    def _call(self, name: str, *, is_idempotent: bool = True, **arguments: Any) -> Mapping[str, Any]:
        return self.client.call(
            name, self.place.table, is_idempotent=is_idempotent, TableName=self.place.table, **arguments
        )

    def _key(self, name: str) -> dict[str, Any]:
        return {LOG: {"S": self.place.partition_key}, NAME: {"S": name}}

    def _attributes(self, item: Item) -> dict[str, Any]:
        found: dict[str, Any] = self._key(item.name)
        if item.content is not None:
            found[CONTENT] = {"B": item.content}
        numbers = {SIZE: item.size, STARTED: item.started}
        found |= {name: {"N": str(number)} for name, number in numbers.items() if number is not None}
        texts = {UPLOAD: item.upload, OBJECT: item.object_name}
        return found | {name: {"S": value} for name, value in texts.items() if value is not None}

    def _item(self, told: Mapping[str, Any]) -> Item:
        """Read an item; whoever may write to the table may have written anything."""
        try:
            return Item(
                _text(told[NAME]),
                optional(_number, told.get(SIZE)),
                told[CONTENT]["B"] if CONTENT in told else None,
                optional(_text, told.get(UPLOAD)),
                optional(_text, told.get(OBJECT)),
                optional(_number, told.get(STARTED)),
            )
        except MALFORMED:
            raise LogDamaged(
                f"An item at {self.place.location} is not what this program writes there; restore it from a backup."
            ) from None


def _text(told: Any) -> str:
    return text(told["S"])


def _number(told: Any) -> int:
    return int(told["N"])


def _name_is_free() -> dict[str, Any]:
    return {
        "ConditionExpression": f"attribute_not_exists(#{NAME})",
        "ExpressionAttributeNames": {f"#{NAME}": NAME},
    }
