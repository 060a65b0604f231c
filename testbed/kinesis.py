"""Kinesis for tests: a stand-in, moto's server put right by `moto_kinesis.py`, in a process of its own.

`python -m testbed.kinesis PORT` runs one by hand.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

from testbed.moto_server import Application, MotoServer, run

ORDERS_PATH = "/testbed-kinesis"
"""Where a test asks for what retention does."""

ROLES_PATH = "/testbed-roles"
"""Where a test says which service account may take which role, and asks who has done what."""

ACCESS_KEY = "testing-access-key"
"""The key of a login that may do anything, also when there are roles."""

AUDIENCE = "sts.amazonaws.com"
"""Whom the tokens of service accounts are for."""


class Kinesis(MotoServer):
    """A service at `endpoint`, for streams and whatever else moto serves; any login is good."""

    module = "testbed.kinesis"
    service = "kinesis"

    def create_stream(self, name: str, shards: int = 1) -> None:
        """Create a stream; it is there at once."""
        self.client().create_stream(StreamName=name, ShardCount=shards)

    def put(self, stream: str, *records: tuple[str, bytes]) -> list[tuple[str, int]]:
        """Put records by key and data; return the shard and sequence number of each."""
        put: list[tuple[str, int]] = []
        for first in range(0, len(records), 500):
            entries = [{"PartitionKey": key, "Data": data} for key, data in records[first : first + 500]]
            answer = self.client().put_records(StreamName=stream, Records=entries)
            put += [(record["ShardId"], int(record["SequenceNumber"])) for record in answer["Records"]]
        return put

    def open_shards(self, stream: str) -> list[dict[str, Any]]:
        """Return the open shards as ListShards shows them, by hash key."""
        shards: list[dict[str, Any]] = self.client().list_shards(StreamName=stream)["Shards"]
        is_open = [shard for shard in shards if "EndingSequenceNumber" not in shard["SequenceNumberRange"]]
        return sorted(is_open, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))

    def split(self, stream: str, shard_id: str) -> None:
        """Split an open shard in the middle."""
        shard = next(shard for shard in self.open_shards(stream) if shard["ShardId"] == shard_id)
        start, end = (int(shard["HashKeyRange"][key]) for key in ("StartingHashKey", "EndingHashKey"))
        middle = str((start + end) // 2 + 1)
        self.client().split_shard(StreamName=stream, ShardToSplit=shard_id, NewStartingHashKey=middle)

    def merge(self, stream: str, shard_id: str, adjacent: str) -> None:
        """Merge two open shards that lie beside each other."""
        self.client().merge_shards(StreamName=stream, ShardToMerge=shard_id, AdjacentShardToMerge=adjacent)

    def expire_records(self, stream: str, shard_id: str, count: int) -> None:
        """Let the oldest records of a shard pass their retention."""
        self._order(what="expire records", stream=stream, shard=shard_id, count=count)

    def expire_shard(self, stream: str, shard_id: str) -> None:
        """Let a closed shard pass its retention: it is listed no more."""
        self._order(what="expire shard", stream=stream, shard=shard_id)

    def expire_iterators(self) -> None:
        """Let all iterators that were made so far be too old."""
        self._order(what="expire iterators")

    def trust(self, role: str, subject: str, *names: str) -> None:
        """Let a service account take a role by its token, to reach data streams by ARN and tables by name.

        From the first one on, logins are checked.
        """
        self.post(ROLES_PATH, json.dumps({"role": role, "subject": subject, "names": names}).encode())

    def asked(self) -> set[tuple[str, str, str]]:
        """Return which roles have done what with which data stream or table."""
        with urllib.request.urlopen(f"{self.endpoint}{ROLES_PATH}") as answer:
            return {(role, action, name) for role, action, name in json.load(answer)}

    def arn(self, stream: str) -> str:
        """Return the ARN of a stream."""
        return f"arn:aws:kinesis:{self.region}:123456789012:stream/{stream}"

    def _order(self, **order: object) -> None:
        self.post(ORDERS_PATH, json.dumps(order).encode())


def _mended() -> Callable[[Application], Application]:
    """Moto is imported in the server's process alone: it takes a second."""
    from testbed.moto_kinesis import mend, with_orders
    from testbed.moto_roles import with_roles

    mend()
    return lambda application: with_orders(with_roles(application))


if __name__ == "__main__":
    run(Kinesis.module, __doc__, _mended)
