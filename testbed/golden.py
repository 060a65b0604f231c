"""The topic of the golden checkpoints, and a small query that records what Spark does with a checkpoint.

tests/golden/checkpoints/README.md tells what was run. A record's value is its partition and offset, so whoever reads the
topic again knows each record by its content.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from exactlyonce.positions.ranges import Partition, Positions
from testbed.kafka import Kafka

TOPIC = "golden"
PARTITIONS = 3

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
"""The settings that every driver of this project has."""

Record = tuple[int, int]
"""Partition and offset."""


def positions(*offsets: int) -> Positions:
    """Return one position per partition, in order."""
    return Positions({Partition(TOPIC, partition): offset for partition, offset in enumerate(offsets)})


START = positions(1, 0, 2)
"""Where the recorded queries began; not the start of the topic, so that a query which forgot it shows."""

ENDS = (positions(3, 2, 4), positions(5, 2, 7), positions(6, 6, 8), positions(8, 8, 10))
"""Where the recorded batches 0, 1, 2 and 3 end; partition 1 has no record in batch 1."""

LATEST = positions(9, 10, 12)
"""Where the topic ends when a checkpoint is restarted: records wait beyond every recorded batch."""

EARLIEST = positions(0, 0, 0)


def records_between(start: Positions, end: Positions) -> list[Record]:
    """Return every record from `start` up to `end`."""
    ranges = start.ranges_until(end)
    return sorted(
        (int(key.key), offset) for key, span in ranges.items() for offset in range(span.from_offset, span.until_offset)
    )


class GoldenTopic:
    """The topic on one broker, filled as far as a test or a recording needs."""

    def __init__(self, kafka: Kafka, name: str = TOPIC) -> None:
        self.kafka = kafka
        self.name = name
        self._filled = EARLIEST
        kafka.create_topic(name, PARTITIONS)

    def fill(self, until: Positions) -> None:
        """Produce the records up to `until` and wait until the broker has them."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers})
        for partition, offset in records_between(self._filled, until):
            producer.produce(self.name, f"{partition}-{offset}".encode(), partition=partition)
        assert producer.flush(60) == 0, "the broker took every record"
        self._filled = until

    def read(self, session: SparkSession, start: str = "earliest", *, batch_records: int | None = None) -> DataFrame:
        """Return the topic as a stream, `batch_records` at most in one batch."""
        options = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "kafka.fetch.max.wait.ms": "10",
            "subscribe": self.name,
            "startingOffsets": start,
            **({} if batch_records is None else {"maxOffsetsPerTrigger": str(batch_records)}),
        }
        return session.readStream.format("kafka").options(**options).load()


@dataclass
class Batches:
    """What a query ran: each batch's number with its rows, in order; and the error it ended with, if it did."""

    ran: list[tuple[int, list[Record]]] = field(default_factory=list)
    error: str | None = None

    @property
    def numbers(self) -> list[int]:
        """The numbers of the batches, in order."""
        return [number for number, _ in self.ran]

    @property
    def records(self) -> list[Record]:
        """All rows, as often as they were read."""
        return sorted(record for _, records in self.ran for record in records)


class AskedToFail(RuntimeError):
    """A batch fails because the recording wants it planned and not checkpointed."""


def run_to_end(
    rows: DataFrame,
    checkpoint: Path | str,
    *,
    fail_at: int | None = None,
    sink_name: str | None = None,
) -> Batches:
    """Run a query on a checkpoint until it has read what its source holds, or fails, and return what it ran.

    With `fail_at` that batch fails inside the sink. `sink_name` is what Spark asks for when sinks may change.
    """
    found = Batches()
    columns = ("partition", "offset") if "offset" in rows.columns else rows.columns

    def record(batch: DataFrame, number: int) -> None:
        if number == fail_at:
            raise AskedToFail(number)
        found.ran.append((number, sorted(tuple(row) for row in batch.select(*columns).collect())))

    mode = "append" if "offset" in rows.columns else "update"
    stream = rows.writeStream.foreachBatch(record).outputMode(mode)
    if sink_name is not None:
        stream._jwrite.name(sink_name)  # PySpark 4.2 has no call of its own for it
    with _quiet_py4j():
        try:
            query = stream.option("checkpointLocation", str(checkpoint)).start()
        except (Py4JJavaError, PySparkException) as problem:
            return Batches(error=str(problem))
        try:
            query.processAllAvailable()
        except StreamingQueryException as problem:
            found.error = str(problem)
        finally:
            query.stop()
    return found


@contextmanager
def _quiet_py4j() -> Iterator[None]:
    """py4j logs the trace of every error that it hands on."""
    logger = logging.getLogger("py4j")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
