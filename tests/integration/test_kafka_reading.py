"""What the one consumer of a process reads, against a real broker: a range as it is, or no range at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Producer

from exactlyonce.connectors.kafka import reading
from exactlyonce.connectors.kafka.properties import consumer_properties
from exactlyonce.connectors.kafka.reading import RangeReader, RecordsGone
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.errors import OriginMissing, SourceRefused
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges
from exactlyonce_spark.connectors.kafka.rows import COLUMNS, arrow_batches
from testbed.kafka import Kafka
from tests.decoders import BYTES, NOTHING
from tests.rig import eventually
from tests.topics import bounds_of, made, open_transaction, produced

Opened = Any
MEBIBYTE = 1024 * 1024


def reader_of(kafka: Kafka, **properties: str) -> RangeReader:
    document = {"bootstrapServers": kafka.bootstrap_servers, "topics": ["any"], "properties": properties}
    return RangeReader(consumer_properties(KafkaSource.model_validate(document), {}))


@pytest.fixture
def reader(kafka: Kafka) -> Iterator[RangeReader]:
    """A reader with what a resource says by default."""
    made_now = reader_of(kafka)
    yield made_now
    made_now.close()


def spans(topic: str, *ranges: tuple[int, int]) -> Ranges:
    """Ranges of the partitions 0, 1, …"""
    return Ranges({Partition(topic, number): OffsetRange(*span) for number, span in enumerate(ranges)})


def offsets(reader: RangeReader, ranges: Ranges) -> dict[int, list[int]]:
    """The offsets that are read, by partition, in their order."""
    found: dict[int, list[int]] = {int(key.key): [] for key in ranges}
    for partition, messages in reader.read(ranges):
        assert all((it.topic(), it.partition()) == (partition.origin, partition.key) for it in messages)
        found[int(partition.key)] += [message.offset() for message in messages]
    return found


def test_a_range_is_read_from_its_first_record_to_its_last_and_no_further(
    kafka: Kafka, name: str, reader: RangeReader
) -> None:
    made(kafka, name, 3)
    for partition, count in enumerate((700, 20, 5)):
        produced(kafka, name, count, partition)
    assert offsets(reader, spans(name, (10, 690))) == {0: list(range(10, 690))}
    assert offsets(reader, spans(name, (690, 700), (0, 20), (2, 4))) == {
        0: list(range(690, 700)),
        1: list(range(20)),
        2: [2, 3],
    }
    assert offsets(reader, spans(name, (3, 3), (7, 8))) == {0: [], 1: [7]}


def test_what_was_fetched_beyond_a_range_that_was_left_early_is_in_no_later_one(
    kafka: Kafka, name: str, reader: RangeReader
) -> None:
    made(kafka, name, 2)
    for partition in range(2):
        produced(kafka, name, 3000, partition)
    for _ in range(20):
        left = reader.read(spans(name, (0, 3000), (0, 3000)))
        next(left)
        left.close()  # type: ignore[attr-defined] # it is a generator
        assert offsets(reader, spans(name, (5, 9), (1, 2))) == {0: [5, 6, 7, 8], 1: [1]}


def test_a_reader_that_is_connected_finds_a_topic_that_is_new(kafka: Kafka, name: str, reader: RangeReader) -> None:
    for topic in (name, f"{name}-second"):
        made(kafka, topic)
        produced(kafka, topic, 3)
        assert offsets(reader, spans(topic, (0, 3))) == {0: [0, 1, 2]}


def test_markers_and_aborted_records_are_gaps_in_a_range_that_ends_where_it_ends(
    kafka: Kafka, name: str, reader: RangeReader
) -> None:
    made(kafka, name)
    produced(kafka, name, 2)
    with open_transaction(kafka, name, 3) as producer:
        producer.abort_transaction(60)
    with open_transaction(kafka, name, 2) as producer:
        producer.commit_transaction(60)
    with open_transaction(kafka, name, 1) as producer:
        producer.abort_transaction(60)
    eventually(lambda: bounds_of(kafka, name).latest == 11, "2, 3 aborted, a marker, 2, a marker, 1 aborted, a marker")
    whole = spans(name, (0, 11))
    assert offsets(reader, whole) == {0: [0, 1, 6, 7]}
    assert offsets(reader, spans(name, (2, 6))) == {0: []}, "nothing of it may be seen, and that is known"
    assert offsets(reader, spans(name, (7, 10))) == {0: [7]}
    uncommitted = reader_of(kafka, **{"isolation.level": "read_uncommitted"})
    assert offsets(uncommitted, whole) == {0: [0, 1, 2, 3, 4, 6, 7, 9]}
    uncommitted.close()


def test_a_range_over_what_compaction_took_is_what_is_left_of_it(kafka: Kafka, name: str, reader: RangeReader) -> None:
    made(kafka, name, config={"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    sent = 0

    def left_of_the_first_hundred() -> list[int]:
        nonlocal sent
        for _ in range(50):
            producer.produce(name, b"value", key=str(sent % 5), partition=0)
            sent += 1
        assert producer.flush(30) == 0
        return offsets(reader, spans(name, (0, 100)))[0] if sent >= 100 else list(range(100))

    eventually(lambda: len(left_of_the_first_hundred()) < 50, "the cleaner has been there", 120)
    found = left_of_the_first_hundred()
    assert all(before < after for before, after in pairwise(found))
    assert offsets(reader, spans(name, (sent - 3, sent)))[0] == [sent - 3, sent - 2, sent - 1]


def test_a_range_whose_first_record_is_gone_is_not_read_as_a_shorter_one(
    kafka: Kafka, name: str, reader: RangeReader
) -> None:
    made(kafka, name)
    produced(kafka, name, 9)
    kafka.delete_records_before(name, 0, 4)
    with pytest.raises(RecordsGone, match=rf"does not hold {name}-0 from 3 on any more"):
        offsets(reader, spans(name, (3, 9)))
    assert offsets(reader, spans(name, (4, 9))) == {0: [4, 5, 6, 7, 8]}, "the reader can still be used"


def test_a_range_that_runs_beyond_the_log_is_not_read_as_a_shorter_one(
    kafka: Kafka, name: str, reader: RangeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_EARLY_END_SECONDS", 0.5)
    made(kafka, name)
    produced(kafka, name, 5)
    with pytest.raises(RecordsGone, match=rf"ends {name}-0 at 5, before 7, where a range that it held ends"):
        offsets(reader, spans(name, (2, 7)))
    with pytest.raises(RecordsGone, match=rf"does not hold {name}-0 from 6 on any more"):
        offsets(reader, spans(name, (6, 7)))


def test_a_partition_that_ends_before_its_range_for_a_moment_is_read_on(
    kafka: Kafka, name: str, reader: RangeReader
) -> None:
    """A leader that is new learns a moment later how far its log is replicated."""
    made(kafka, name)
    produced(kafka, name, 5)
    reads = reader.read(spans(name, (0, 8)))
    assert len(next(reads)[1]) == 5
    produced(kafka, name, 4)
    assert [message.offset() for _, messages in reads for message in messages] == [5, 6, 7]


def test_a_record_larger_than_a_fetch_is_read(kafka: Kafka, name: str) -> None:
    made(kafka, name, config={"max.message.bytes": str(16 * MEBIBYTE)})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": 16 * MEBIBYTE})
    sizes = [1, 9 * MEBIBYTE, 7, 3 * MEBIBYTE]
    for size in sizes:
        producer.produce(name, b"x" * size, partition=0)
        assert producer.flush(30) == 0
    small = reader_of(kafka, **{"max.partition.fetch.bytes": "2048", "fetch.max.bytes": "4096"})
    found = [len(message) for _, messages in small.read(spans(name, (0, 4))) for message in messages]
    assert found == sizes
    small.close()


def test_a_partition_or_topic_that_is_not_there_is_named(kafka: Kafka, name: str, reader: RangeReader) -> None:
    made(kafka, name)
    with pytest.raises(OriginMissing, match=f"does not know {name}-7"):
        offsets(reader, Ranges({Partition(name, 7): OffsetRange(0, 1)}))


@pytest.mark.parametrize("given", [{"fetch.min.bytes": "many"}, {"security.protocol": "PIGEON"}])
def test_properties_that_no_consumer_can_be_made_of_are_one_sentence(kafka: Kafka, given: Mapping[str, str]) -> None:
    with pytest.raises(SourceRefused, match=r"No client can be made for Kafka at .* correct source.kafka.properties"):
        offsets(reader_of(kafka, **given), spans("any", (0, 1)))


def test_every_part_of_a_record_is_a_column(kafka: Kafka, name: str, reader: RangeReader) -> None:
    for_ever = {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}
    made(kafka, name, config=for_ever)
    moments = {
        "in milliseconds": 1_764_248_852_123,
        "in microseconds": 1_764_248_852_123_000,
        "in nanoseconds": 1_764_248_852_123_000_000,
        "the last that can be written": 253_402_300_799_999,
        "one later": 253_402_300_800_000,
    }
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for moment in moments.values():
        producer.produce(name, b"v", key=b"k", headers=[("h", b"1"), ("h", None)], partition=0, timestamp=moment)
    producer.produce(name, None, partition=0, timestamp=0)
    assert producer.flush(30) == 0
    (batch,) = arrow_batches(reader.read(spans(name, (0, 6))), tuple(COLUMNS), BYTES, NOTHING)
    rows = batch.to_pylist()
    assert batch.schema.names == [*COLUMNS, "value", "malformed"]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [(name, 0, at) for at in range(6)]
    assert [row["key"] for row in rows] == [*[b"k"] * 5, None]
    assert [row["value"] for row in rows] == [
        {"value": value} if row["malformed"] is None else None
        for value, row in zip([*[b"v"] * 5, None], rows, strict=True)
    ]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert rows[5]["headers"] is None
    assert str(rows[0]["timestamp"]) == "2025-11-27 13:07:32.123000+00:00"
    assert str(rows[3]["timestamp"]) == "9999-12-31 23:59:59.999000+00:00"
    readable = [row["timestamp"] is not None for row in rows]
    assert readable == [True, False, False, True, False, True]
    assert readable == [row["malformed"] is None for row in rows], (
        "what no column can hold is malformed, never another time"
    )
    assert rows[1]["malformed"] == {
        "reason": "its timestamp, 1764248852123000 milliseconds, is outside of the years 1 to 9999",
        **{"value": b"v", "key": b"k", "timestamp": None},
    }
