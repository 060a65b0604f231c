"""The stand-in for Doris with tables that tests share, and raw requests to it."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from testbed.doris.servers import StandIn
from testbed.doris.tables import Column, Table

DATABASE = "shop"
ORDERS = Table("orders", (Column("id", "BIGINT", is_key=True, nullable=False), Column("note", "VARCHAR", length=20)))
UNIQUE = Table(
    "accounts", (Column("id", "BIGINT", is_key=True, nullable=False), Column("balance", "BIGINT")), "UNIQUE_KEYS"
)
SUMS = Table(
    "sums",
    (
        Column("id", "BIGINT", is_key=True, nullable=False),
        Column("total", "BIGINT", aggregation="SUM"),
        Column("latest", "VARCHAR", aggregation="REPLACE"),
        Column("most", "BIGINT", aggregation="MAX"),
    ),
    "AGG_KEYS",
)


@contextmanager
def doris() -> Iterator[StandIn]:
    """Start the stand-in with its tables."""
    with StandIn() as stand_in:
        for table in (ORDERS, UNIQUE, SUMS):
            stand_in.cluster.create(DATABASE, table)
        yield stand_in


def ids(stand_in: StandIn, table: str = "orders") -> list[int]:
    """Return the ids that a reader of a table sees: the oracle."""
    return [row[0] for row in stand_in.cluster.select(f'select id from "{DATABASE}.{table}" order by id')]


def authorization(user: str = "loader", password: str = "secret") -> str:
    """Return the header of a login."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def lines(*rows: Any) -> bytes:
    """Return rows as JSON, one per line."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def request(host: str, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, Any, str]:
    """Send a request as it stands, and return the status, the JSON and the Location of its answer."""
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        connection.request(method, path, body, {"Authorization": authorization(), **headers})
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else None, answer.getheader("Location") or ""
    finally:
        connection.close()


def load(stand_in: StandIn, label: str, body: bytes, table: str = "orders", **headers: str) -> Any:
    """Load in two phases as curl does: ask the frontend, follow its redirect with the login again, return the JSON."""
    sent = {
        "Expect": "100-continue",
        "label": label,
        "format": "json",
        "read_json_by_line": "true",
        "two_phase_commit": "true",
        **headers,
    }
    path = f"/api/{DATABASE}/{table}/_stream_load"
    status, answer, location = request(stand_in.frontend, "PUT", path, sent)
    if status != 307:
        return answer
    found = urlsplit(location)
    return request(f"{found.hostname}:{found.port}", "PUT", found.path, sent, body)[1]


def operate(stand_in: StandIn, operation: str, **names: str) -> Any:
    """Commit or abort by `txn_id` or `label`, through the frontend, and return the JSON."""
    sent = {**names, "txn_operation": operation}
    _, _, location = request(stand_in.frontend, "PUT", f"/api/{DATABASE}/_stream_load_2pc", sent)
    found = urlsplit(location)
    return request(f"{found.hostname}:{found.port}", "PUT", found.path, sent)[1]


def state(stand_in: StandIn, label: str) -> str:
    """Return the state of a label."""
    return str(request(stand_in.frontend, "GET", f"/api/{DATABASE}/get_load_state?label={label}", {})[1]["data"])
