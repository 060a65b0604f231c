"""What moto's DynamoDB lacks, put right in the process that serves it.

moto answers every scan as if it were strongly consistent, has tables ready at once, and pages of 1,000,000 bytes. Here a scan
that does not ask for consistency finds nothing, a page has 1 MB, and a table may take its time. A refused login is told in
JSON, as DynamoDB does.

Sources: Amazon DynamoDB, "Read consistency", "Scan", "CreateTable".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from moto.dynamodb import responses
from moto.dynamodb.models import table

from testbed.dynamo_db import ORDERS_PATH
from testbed.moto_server import Application

_PAGE_BYTES = 1 << 20

_looks = [0]
"""So often a table that is made from now on has to be looked at before it is ready."""

_handler = responses.DynamoHandler
_scan, _create_table, _describe_table = _handler.scan, _handler.create_table, _handler.describe_table


def scan(handler: Any) -> Any:
    """List items, if they are to be listed consistently."""
    if handler.body.get("ConsistentRead"):
        return _scan(handler)
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
    table.RESULT_SIZE_LIMIT = _PAGE_BYTES
    for changed in (scan, create_table, describe_table):
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
