"""DynamoDB for tests: a stand-in, moto's server put right by `moto_dynamo_db.py`, in a process of its own.

`python -m testbed.dynamo_db PORT` runs one by hand.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from typing import Any

from testbed.moto_server import MotoServer, serve

ORDERS_PATH = "/testbed-dynamo-db"
"""Where a test says how tables are made."""


class DynamoDb(MotoServer):
    """A service at `endpoint`; everything it holds is in its memory. Any login is good until `guard` is called."""

    module = "testbed.dynamo_db"
    service = "dynamodb"

    def make_tables_slowly(self, looks: int) -> None:
        """Let a table that is made from now on be ready only after it was looked at so many times."""
        self._post(ORDERS_PATH, json.dumps({"looks": looks}).encode(), "application/json")

    def guard(self) -> None:
        """From now on check every login and its rights."""
        self._post("/moto-api/reset-auth", b"0", "text/plain")

    def secret(self) -> dict[str, str]:
        """The keys of the secret of a ledger on this service."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def items(self, table: str) -> list[dict[str, Any]]:
        """Return every item of a table."""
        pages = self.client().get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def _post(self, path: str, body: bytes, kind: str) -> None:
        request = urllib.request.Request(f"{self.endpoint}{path}", body, {"Content-Type": kind}, method="POST")
        urllib.request.urlopen(request).close()


def main() -> None:
    """Serve until the process is ended."""
    from testbed.moto_dynamo_db import mend, with_orders

    parser = argparse.ArgumentParser(prog="python -m testbed.dynamo_db", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    mend()
    serve(options.host, options.port, with_orders)


if __name__ == "__main__":
    main()
