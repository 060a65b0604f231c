"""The last part of `make bench`: how fast shards are read, against 2 MB a second and shard. Writes bench/out/kinesis.json.

What is measured is the reader without Spark: boto3's calls, the reader of shards, the planner, user records, rows in Arrow.
The service is a stand-in that serves answers made beforehand, 2 MB each, and keeps no limits (`kinesis_stand_in.py`). Goal: at
least 0.95 of the limit per shard; the planner's one process reads 8 shards.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import psutil

from bench.figures import Figure, compared, table, write
from bench.kinesis_stand_in import RECORD_BYTES, STREAM, shard_id
from exactlyonce.api.format import Format
from exactlyonce.connectors.kinesis import rate_limit
from exactlyonce.connectors.kinesis.aggregation import RawRecord, user_record_count, user_records
from exactlyonce.connectors.kinesis.clients import kinesis_client
from exactlyonce.connectors.kinesis.login import KinesisAddress
from exactlyonce.connectors.kinesis.positions import TRIM_HORIZON, UserRecord
from exactlyonce.connectors.kinesis.reading import ShardReader, read_range
from exactlyonce.schema.aws_login import AwsLogin
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit, Planner
from exactlyonce_spark.connectors.kinesis.rows import arrow_batches
from exactlyonce_spark.decode.records import RecordDecoder
from exactlyonce_spark.decode.unread import LeftOut
from tests.kinesis_in_memory import FIRST_SEQUENCE_NUMBER, GAP, aggregated

PAGE_RECORDS = 2000
SHARD_BYTES_PER_SECOND = 2_000_000


AS_BYTES = Format.model_validate({"type": "Raw", "schema": "value BINARY"})


@contextmanager
def stand_in(shards: int, pages: int) -> Iterator[KinesisAddress]:
    """Serve a stream."""
    command = [sys.executable, "-m", "bench.kinesis_stand_in", str(shards), str(pages), str(PAGE_RECORDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            yield KinesisAddress("eu-west-1", f"http://127.0.0.1:{port}", AwsLogin("bench", "bench"))
        finally:
            server.terminate()


def measured(name: str, records: int, limit: Figure, read: Callable[[], int]) -> list[Figure]:
    """Return records per second against a limit, and core-seconds of this process for a million."""
    process = psutil.Process()
    before, began = process.cpu_times(), time.monotonic()
    found = read()
    seconds, after = time.monotonic() - began, process.cpu_times()
    assert found == records, f"{found} of {records} records were read"
    used = after.user + after.system - before.user - before.system
    return [
        compared(f"{name}: records", records / seconds, "1/s", limit),
        Figure(f"{name}: core-seconds for a million records", used * 1_000_000 / records, "s"),
    ]


def fetched(address: KinesisAddress, records: int) -> int:
    """Read one shard page by page, as the planner's threads do, and return how many user records there were."""
    reader, found = ShardReader(kinesis_client(address), STREAM, shard_id(0), TRIM_HORIZON), 0
    while found < records:
        found += sum(len(user_records(record)) for record in reader.fetch().records)
    return found


def in_rows(address: KinesisAddress, records: int) -> int:
    """Read a range of one shard into rows, as a task does that is not handed its records."""
    end = UserRecord(FIRST_SEQUENCE_NUMBER + (records - 1) * GAP + 1).position
    users = read_range(kinesis_client(address), STREAM, shard_id(0), TRIM_HORIZON, end)
    return sum(
        batch.num_rows for batch in arrow_batches(users, STREAM, shard_id(0), RecordDecoder(AS_BYTES), LeftOut())
    )


def planned(address: KinesisAddress, shards: int, records: int) -> int:
    """Plan the batches of many shards in one process, as Spark's driver does; return how many user records that were."""
    client = kinesis_client(address)
    planner = Planner(
        lambda shard, start: ShardReader(client, STREAM, shard, start),
        lambda: client.shards(STREAM),
        BatchLimit(1_000_000, 32 * 1024 * 1024),  # so little that all of it is handed over
        client.clock,
    )
    stands, found = {shard_id(number): TRIM_HORIZON for number in range(shards)}, 0
    try:
        while found < records:
            ends = planner.ends(stands)
            for shard, end in ends.items():
                found += sum(user_record_count(record) for record in planner.fetched(shard, stands[shard], end) or ())
            stands = ends
    finally:
        planner.close()
    return found


def taken_apart(records: int) -> Figure:
    """Return how many user records of aggregates are taken apart in a second."""
    aggregate = RawRecord(FIRST_SEQUENCE_NUMBER, "k", aggregated(["x" * RECORD_BYTES] * 40), 0)
    rounds, began = records // 40, time.monotonic()
    for _ in range(rounds):
        user_records(aggregate)
    return Figure("user records taken out of aggregates of 40", rounds * 40 / (time.monotonic() - began), "1/s")


def main() -> int:
    """Run all parts."""
    parser = argparse.ArgumentParser(prog="python -m bench.kinesis", description=__doc__.split("\n")[0])
    parser.add_argument("--pages", type=int, default=8, help="of 2,000 records each, per shard (default: %(default)s)")
    options = parser.parse_args()
    records = options.pages * PAGE_RECORDS
    one = Figure("limit of a shard, 2 MB/s in records of 1 KB", SHARD_BYTES_PER_SECOND / RECORD_BYTES, "1/s")
    eight = Figure("limit of 8 shards", 8 * one.value, "1/s")
    figures = [one, eight]
    with stand_in(1, options.pages) as address:
        fetched(address, PAGE_RECORDS)  # the first call makes the client
        figures += measured("one shard, at the pace that is kept", records, one, lambda: fetched(address, records))
    at_full_speed = mock.patch.object(rate_limit, "SHARD_BYTES_PER_SECOND", float("inf"))
    with at_full_speed, stand_in(1, options.pages) as address:
        fetched(address, PAGE_RECORDS)
        figures += measured("one shard, fetched", records, one, lambda: fetched(address, records))
        figures += measured("one shard, a task's range in rows", records, one, lambda: in_rows(address, records))
        with stand_in(8, options.pages) as of_eight:
            figures += measured(
                "8 shards, planned by one process", 8 * records, eight, lambda: planned(of_eight, 8, 8 * records)
            )
    figures.append(taken_apart(400_000))
    print(f"\n{table(figures)}\n\n{write(figures, 'kinesis')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
