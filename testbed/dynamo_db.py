"""DynamoDB for tests: a stand-in, moto's server put right by `moto_dynamo_db.py`, in a process of its own.

`python -m testbed.dynamo_db PORT` runs one by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from testbed.moto_server import Application, MotoServer, run

ORDERS_PATH = "/testbed-dynamo-db"
"""Where a test says how tables are made."""


class DynamoDb(MotoServer):
    """A service at `endpoint`; everything it holds is in its memory. Any login is good until `guard` is called."""

    module = "testbed.dynamo_db"
    service = "dynamodb"

    def make_tables_slowly(self, looks: int) -> None:
        """Let a table that is made from now on be ready only after it was looked at so many times."""
        self.post(ORDERS_PATH, json.dumps({"looks": looks}).encode())

    def items(self, table: str) -> list[dict[str, Any]]:
        """Return every item of a table."""
        pages = self.client().get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]


def _mended() -> Callable[[Application], Application]:
    """Moto is imported in the server's process alone: it takes a second."""
    from testbed.moto_dynamo_db import mend, with_orders

    mend()
    return with_orders


if __name__ == "__main__":
    run(DynamoDb.module, __doc__, _mended)
