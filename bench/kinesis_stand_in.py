"""A stand-in for Kinesis that is no limit: it serves answers of GetRecords that were made beforehand, and keeps no limits.

python -m bench.kinesis_stand_in SHARDS PAGES RECORDS_A_PAGE    prints its port, and serves until it is ended
"""

from __future__ import annotations

import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from exactlyonce.connectors.kinesis.shards import GREATEST_HASH_KEY
from tests.kinesis_in_memory import FIRST_SEQUENCE_NUMBER, GAP

STREAM = "bench"
RECORD_BYTES = 1024
CREATED_SECONDS = 1_700_000_000.0
AN_HOUR_MILLISECONDS = 3_600_000
"""How old a page says that it is: older than any run, so that a query of what there is now reads on to the last one."""


def shard_id(number: int) -> str:
    """Return the id of a shard."""
    return f"shardId-{number:012d}"


def pages(count: int, records: int) -> list[bytes]:
    """Return the bodies of so many answers, without the iterator of the next one."""
    encoded = base64.b64encode(b"x" * RECORD_BYTES).decode()
    bodies = []
    for page in range(count):
        first = FIRST_SEQUENCE_NUMBER + page * records * GAP
        told = [
            {
                "SequenceNumber": str(first + place * GAP),
                "Data": encoded,
                "PartitionKey": f"{place:08d}",
                "ApproximateArrivalTimestamp": CREATED_SECONDS,
            }
            for place in range(records)
        ]
        behind = AN_HOUR_MILLISECONDS if page + 1 < count else 0
        bodies.append(json.dumps({"Records": told, "MillisBehindLatest": behind})[:-1].encode())
    return bodies


def main() -> None:
    """Serve."""
    shards, count, records = (int(argument) for argument in sys.argv[1:4])
    bodies = pages(count, records)
    empty = b'{"Records": [], "MillisBehindLatest": 0'

    def answer(action: str, asked: dict[str, Any]) -> bytes:
        if action == "GetRecords":
            shard, _, page = asked["ShardIterator"].partition("/")
            body = bodies[int(page)] if int(page) < count else empty
            return body + f', "NextShardIterator": "{shard}/{min(int(page) + 1, count)}"}}'.encode()
        if action == "GetShardIterator":
            return json.dumps({"ShardIterator": f"{asked['ShardId']}/0"}).encode()
        return json.dumps(_summary() if action == "DescribeStreamSummary" else _listed(shards)).encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = answer(self.headers["X-Amz-Target"].partition(".")[2], asked)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Tell nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


def _summary() -> dict[str, Any]:
    told: dict[str, Any] = {
        "StreamName": STREAM,
        "StreamARN": f"arn:aws:kinesis:eu-west-1:1:stream/{STREAM}",
        "StreamStatus": "ACTIVE",
    }
    told |= {"StreamCreationTimestamp": CREATED_SECONDS, "RetentionPeriodHours": 24}
    told |= {"OpenShardCount": 1, "EnhancedMonitoring": []}
    return {"StreamDescriptionSummary": told}


def _listed(shards: int) -> dict[str, Any]:
    bounds = [GREATEST_HASH_KEY * number // shards for number in range(shards)] + [GREATEST_HASH_KEY + 1]
    return {
        "Shards": [
            {
                "ShardId": shard_id(number),
                "HashKeyRange": {
                    "StartingHashKey": str(bounds[number]),
                    "EndingHashKey": str(bounds[number + 1] - 1),
                },
                "SequenceNumberRange": {"StartingSequenceNumber": str(FIRST_SEQUENCE_NUMBER)},
            }
            for number in range(shards)
        ]
    }


if __name__ == "__main__":
    main()
