"""The stand-in for Doris with tables that tests share, and raw requests to it."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from exactlyonce_spark.connectors.doris.client import DorisClient, Login
from exactlyonce_spark.connectors.doris.exchange import Node
from testbed.doris.broker_loads import Files
from testbed.doris.servers import StandIn
from testbed.doris.tables import Column, Table

DATABASE = "shop"
PASSWORD = "secret"
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
def doris(frontends: int = 1) -> Iterator[StandIn]:
    """Start the stand-in with its tables."""
    with StandIn(frontend_count=frontends) as stand_in:
        for table in (ORDERS, UNIQUE, SUMS):
            stand_in.cluster.create(DATABASE, table)
        yield stand_in


@contextmanager
def doris_with_files(files: Files, frontends: int = 1) -> Iterator[StandIn]:
    """Start the stand-in with its tables and its query port, for broker loads of files.

    PyMySQL asks for TLS, which the stand-in does not have, with all certificates of the machine: reading them for each
    connection would be most of the time of a test.
    """
    with pytest.MonkeyPatch.context() as patched, StandIn(files=files, frontend_count=frontends) as stand_in:
        patched.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)
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


def node(text: str) -> Node:
    """Return the node at host:port."""
    host, _, port = text.rpartition(":")
    return Node(host, int(port))


def client(*frontends: str, password: str = PASSWORD, database: str = DATABASE, table: str = "orders") -> DorisClient:
    """Return the client of a table, by its frontends as host:port."""
    return DorisClient(tuple(map(node, frontends)), Login("loader", password), database, table, 5.0, 5.0)


@contextmanager
def listener(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Answer each connection with these bytes, and keep what it sent first."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(65536))
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", heard
        server.shutdown(socket.SHUT_RDWR)
