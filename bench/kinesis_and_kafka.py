"""A part of `make bench`: the same records through Spark from shards and from a topic, to noop.

As many shards as partitions (eight, or --shards), records of 1 KB, as many to a batch. Kinesis is the stand-in of
`bench.kinesis`, which serves answers made beforehand; the broker of Kafka is a real one; neither limits what is read.
Goal: 0.95 of what the shards of a real service allow, 2 MB/s each. Writes bench/out/kinesis_and_kafka_<shards>.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.core_seconds import CoreSeconds, counted
from bench.figures import Figure, compared, table, write
from bench.kinesis import PAGE_RECORDS, SHARD_BYTES_PER_SECOND, stand_in
from bench.kinesis_stand_in import RECORD_BYTES, STREAM, shard_id
from bench.setup import batch_moments
from exactlyonce.api.format import Format
from exactlyonce.connectors.kinesis.login import KinesisAddress
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.launch.secrets import SECRETS_FOLDER
from exactlyonce_spark.connectors.kinesis.connector import KinesisRecords
from testbed.kafka import Kafka
from testbed.spark import local_session
from tests.kinesis_checkpoint import seed

BATCH_RECORDS_PER_SHARD = 4_000


AS_BYTES = Format.model_validate({"type": "Raw", "schema": "value BINARY"})


def filled(kafka: Kafka, records: int, partitions: int) -> None:
    """Produce the records that the stand-in serves."""
    kafka.create_topic(STREAM, partitions)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.messages": 2_000_000, "log_level": 2}
    )
    for number in range(records):
        producer.produce(STREAM, b"x" * RECORD_BYTES, key=f"{number:08d}", partition=number % partitions)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0, "the broker took every record"


def from_kinesis(spark: Any, address: KinesisAddress, shards: int) -> Any:
    """Return the stream of the shards."""
    document = {
        "streamName": STREAM,
        "region": "eu-west-1",
        "endpoint": address.endpoint,
        "secretRef": {"name": "login"},
    }
    source = KinesisSource.model_validate({**document, "maxRecordsPerTrigger": shards * BATCH_RECORDS_PER_SHARD})
    return KinesisRecords(source, AS_BYTES, None).stream(spark, shards, None)


def from_kafka(spark: Any, kafka: Kafka, partitions: int) -> Any:
    """Return the stream of the topic, by Spark's own source."""
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": STREAM,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(partitions * BATCH_RECORDS_PER_SHARD),
    }
    return spark.readStream.format("kafka").options(**options).load()


def rate(records: Any, folder: Path, total: int) -> float:
    """Run the stream to its end and return its records per second behind the first batch of records, which warms up."""
    query = (
        records.writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint" / "bench"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    read = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sum(read) == total, f"{sum(read)} of {total} records were read"
    moments = batch_moments(folder)[-len(read) :]
    return float((total - read[0]) / (moments[-1] - moments[0]))


def main() -> int:
    """Read both, in turns."""
    parser = argparse.ArgumentParser(prog="python -m bench.kinesis_and_kafka", description=__doc__.split("\n")[0])
    parser.add_argument("--pages", type=int, default=16, help="of 2,000 records each, per shard (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each (default: %(default)s)")
    parser.add_argument("--shards", type=int, default=8, help="and partitions (default: %(default)s)")
    options = parser.parse_args()
    shards = options.shards
    total = shards * options.pages * PAGE_RECORDS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exactlyonce-bench-")))
        login = folder / "secrets" / "login"
        login.mkdir(parents=True)
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            (login / key).write_text("bench")
        os.environ |= {SECRETS_FOLDER: str(folder / "secrets"), "PYSPARK_PYTHON": sys.executable}
        kafka = stack.enter_context(Kafka(folder / "kafka"))
        filled(kafka, total, shards)
        address = stack.enter_context(stand_in(shards, options.pages))
        spark = stack.enter_context(local_session("bench", {"spark.driver.memory": "2g"}, with_kafka=True))
        readers: dict[str, Callable[[], Any]] = {
            "Kafka": lambda: from_kafka(spark, kafka, shards),
            "Kinesis": lambda: from_kinesis(spark, address, shards),
        }
        rates: dict[str, list[float]] = {name: [] for name in readers}
        used: list[Figure] = []
        for turn in range(options.repeats):
            for name, records in readers.items():
                run = folder / f"{name}-{turn}"
                if name == "Kinesis":
                    seed(run / "checkpoint" / "bench", STREAM, map(shard_id, range(shards)))
                core_seconds = CoreSeconds(kafka.pid)
                with counted(core_seconds):
                    rates[name].append(rate(records(), run, total))
                if turn == options.repeats - 1:
                    used += core_seconds.figures(name, total / 1e6)
                print(f"  {turn + 1}/{options.repeats} {name}: {rates[name][-1]:,.0f} records/s", flush=True)
    limit = Figure(f"limit of {shards} shards", shards * SHARD_BYTES_PER_SECOND / RECORD_BYTES, "1/s")
    of_kafka = Figure(f"{shards} partitions of Kafka through Spark", max(rates["Kafka"]), "1/s")
    best = max(rates["Kinesis"])
    figures = [
        limit,
        of_kafka,
        compared(f"{shards} shards of Kinesis through Spark", best, "1/s", limit),
        compared(f"{shards} shards of Kinesis through Spark, beside Kafka", best, "1/s", of_kafka),
        *used,
    ]
    print(f"\n{table(figures)}\n\n{write(figures, f'kinesis_and_kafka_{shards}')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
