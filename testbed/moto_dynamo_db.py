"""What moto's DynamoDB lacks, put right in the process that serves it.

moto answers every read as if it were strongly consistent, counts binary values as base64, has tables ready at once, and pages
of 1,000,000 bytes. Here a read that does not ask for consistency lacks everything, an item has 400 KB of bytes, a page 1 MB,
and a table may take its time. A refused login is told in JSON, as DynamoDB does.

Sources: Amazon DynamoDB, "Read consistency", "Item sizes and formats", "Query", "CreateTable".
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from moto.dynamodb import responses
from moto.dynamodb.exceptions import ItemSizeTooLarge
from moto.dynamodb.models import dynamo_type, table

from testbed.dynamo_db import ORDERS_PATH
from testbed.moto_server import Application

MOST_ITEM_BYTES = 400 * 1024
_PAGE_BYTES = 1 << 20

_looks = [0]
"""So often a table that is made from now on has to be looked at before it is ready."""

_handler = responses.DynamoHandler
_size, _get_item, _query = dynamo_type.DynamoType.size, _handler.get_item, _handler.query
_create_table, _describe_table = _handler.create_table, _handler.describe_table


class Attributes(dict[str, Any]):
    """The attributes of an item, 400 KB of them."""

    def __setitem__(self, name: str, value: Any) -> None:
        if sum(len(key.encode()) + size_of(it) for key, it in {**self, name: value}.items()) > MOST_ITEM_BYTES:
            raise ItemSizeTooLarge
        super().__setitem__(name, value)


def size_of(value: Any) -> int:
    """Return how large a value is: of binary ones the bytes, not their base64."""
    if not value.is_binary():
        return int(_size(value))
    return len(value.value if isinstance(value.value, bytes) else base64.b64decode(value.value))


def get_item(handler: Any) -> Any:
    """Read an item, if it is to be read consistently."""
    return _get_item(handler) if handler.body.get("ConsistentRead") else responses.DynamoResult({})


def query(handler: Any) -> Any:
    """List items, if they are to be listed consistently."""
    if handler.body.get("ConsistentRead"):
        return _query(handler)
    return responses.DynamoResult({"Items": [], "Count": 0, "ScannedCount": 0})


def create_table(handler: Any) -> Any:
    """Make a table that is not ready yet."""
    answer = _create_table(handler)
    handler.dynamodb_backend.get_table(handler.body["TableName"]).looks_left = _looks[0]
    return answer


def describe_table(handler: Any) -> Any:
    """Describe a table, which may be on its way."""
    answer = _describe_table(handler)
    found = handler.dynamodb_backend.get_table(handler.body["TableName"])
    if getattr(found, "looks_left", 0) > 0:
        found.looks_left -= 1
        answer.result["Table"]["TableStatus"] = "CREATING"
    return answer


def mend() -> None:
    """Let moto use what is above."""
    dynamo_type.DynamoType.size = size_of
    dynamo_type.LimitedSizeDict = Attributes
    table.RESULT_SIZE_LIMIT = _PAGE_BYTES
    for changed in (get_item, query, create_table, describe_table):
        setattr(_handler, changed.__name__, changed)


def with_orders(application: Application) -> Application:
    """Add what a test may ask for."""

    def serve(environment: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if environment["PATH_INFO"] != ORDERS_PATH:
            return _with_refusals_in_json(application, environment, respond)
        order = json.loads(environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"])))
        _looks[0] = order["looks"]
        respond("204 No Content", [])
        return []

    return serve


def _with_refusals_in_json(
    application: Application, environment: dict[str, Any], respond: Callable[..., Any]
) -> Iterable[bytes]:
    told: list[Any] = []
    body = b"".join(application(environment, lambda *answer: told.extend(answer)))
    found = re.search(rb"<Code>(.*?)</Code><Message>(.*?)</Message>", body)
    if found is None or "HTTP_X_AMZ_TARGET" not in environment:
        respond(*told)
        return [body]
    names = {b"AccessDenied": "AccessDeniedException", b"InvalidClientTokenId": "UnrecognizedClientException"}
    kind = f"com.amazon.coral.service#{names.get(found[1], found[1].decode())}"
    answer = json.dumps({"__type": kind, "message": found[2].decode()}).encode()
    respond("400 Bad Request", [("Content-Type", "application/x-amz-json-1.0"), ("Content-Length", str(len(answer)))])
    return [answer]
