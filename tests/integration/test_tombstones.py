"""Tombstones of a compacted topic: they halt a stream, are skipped, or delete; compared with what the topic itself says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import SparkSession

from exactlyonce.api.format import Format, OnTombstone
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.ledger.letters import LetterRow, LetterStatus
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.reconcile.loop import Done, Halted
from exactlyonce_spark import formats
from exactlyonce_spark.connectors.kafka.connector import KafkaReader
from testbed.spark import local_session
from tests.combinations import in_full, one_or_all
from tests.rig import Rig

pytestmark = pytest.mark.seconds(20)

LARGE = 2400
"""Records a batch that tasks write; the driver writes smaller ones itself."""
SCHEMA = "id BIGINT NOT NULL, customer STRING"

Change = tuple[int, str | None]
Record = tuple[bytes | None, bytes | None]

KEYS_OF_TOMBSTONES = (
    "SELECT coalesce(id, CAST(CAST(_key AS STRING) AS BIGINT)) AS id, customer, _deleted FROM source "
    "WHERE _deleted OR customer <> 'passed over'"
)


def changes(count: int, seed: int) -> list[Change]:
    """Changes of 300 keys; a third delete, some of them keys that were never there, and many keys change often."""
    chance = random.Random(seed)
    return [
        (chance.randrange(300), None if chance.random() < 0.35 else f"customer {number}") for number in range(count)
    ]


def send(rig: Rig, records: Sequence[Change]) -> None:
    """Produce each change under its key, to the partition of that key."""
    producer = Producer({"bootstrap.servers": rig.kafka.bootstrap_servers})
    for key, customer in records:
        value = None if customer is None else json.dumps({"id": key, "customer": customer}).encode()
        producer.produce(rig.name, value, key=str(key).encode(), partition=key % 4)
        producer.poll(0)
    assert producer.flush(30) == 0


def compact(rig: Rig) -> None:
    """Let the topic be one that is compacted, and soon: what is read may lack what was changed since."""
    wanted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, rig.name, incremental_configs=entries)
    admin = rig.kafka.admin()
    admin.incremental_alter_configs([resource])[resource].result(30)


def expected(records: Sequence[Change]) -> dict[int, str]:
    """What a reader of the whole topic ends with."""
    kept: dict[int, str] = {}
    for key, customer in records:
        if customer is None:
            kept.pop(key, None)
        else:
            kept[key] = customer
    return kept


def found(rig: Rig) -> dict[int, str]:
    rows = rig.sql("select id, customer from orders")
    assert len(rows) == len({key for key, _ in rows})
    return dict(rows)


def deleting(rig: Rig, commit: str) -> dict[str, object]:
    """A resource that deletes what tombstones delete."""
    sink = {**rig.document()["spec"]["sink"]["postgres"], "write": "Upsert", "keys": ["id"], "commit": commit}
    return {
        "spec.source.kafka.maxOffsetsPerTrigger": LARGE,
        "spec.source.format": {"schema": SCHEMA, "onTombstone": "Delete"},
        "spec.transform": {"sql": KEYS_OF_TOMBSTONES},
        "spec.sink.postgres": sink,
    }


@pytest.mark.parametrize("commit", one_or_all(["Partition", "Batch"]))
def test_a_stream_that_a_tombstone_has_halted_goes_on_by_skipping_or_by_deleting(rig: Rig, commit: str) -> None:
    rig.sql("alter table orders add primary key (id)")
    compact(rig)
    rig.overrides |= {
        "spec.source.format": {"schema": SCHEMA},
        "spec.transform": {"sql": "SELECT id, customer FROM source WHERE id >= 0"},
        "spec.recovery.maxFailuresPerBatch": 1,
    }
    send(rig, [(1, "one"), (2, None), (3, "three"), (1, None)])
    halted = rig.run()
    assert isinstance(halted, Halted)
    assert "the value is null (a tombstone)" in halted.message
    assert "Set source.format.onTombstone to Skip, or to Delete with write: Upsert" in halted.message
    assert found(rig) == {}

    rig.overrides["spec.source.format"] = {"schema": SCHEMA, "onTombstone": "Skip", "onMalformed": "DeadLetter"}
    rig.send([(0, b"not json")], key=b"5")
    assert rig.run() == Done(completed=True), rig.story()
    assert found(rig) == {1: "one", 3: "three"}
    assert rig.sql("select encode(value, 'escape') from exactlyonce.dead_letters") == [("not json",)]
    assert rig.sql("select sum(records_read), sum(dead_letters) from exactlyonce.batches where status = 'Landed'") == [
        (5, 1)
    ]

    later = [(3, None), *changes(LARGE, 1)]
    send(rig, later)
    crash = in_full("land.rows-moved@3=kill-driver batch.landed@3=kill-driver", otherwise=None)
    assert rig.run(changes=deleting(rig, commit), crash=crash) == Done(completed=True), rig.story()
    assert found(rig) == expected([(1, "one"), (3, "three"), *later])


RECORDS: tuple[Record, ...] = ((b"1", b'{"id": 1}'), (b"2", None), (None, None), (b"3", b"4"))
"""Two tombstones, of which one has no key, between two values."""
JSON, CSV = {"schema": "id BIGINT NOT NULL"}, {"type": "Csv", "schema": "id BIGINT"}
TEXT, BYTES = ({"type": "Raw", "schema": f"value {kind}"} for kind in ("STRING", "BINARY NOT NULL"))


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session("tombstones") as session:
        yield session


def test_every_format_skips_tombstones_or_marks_them_as_deletions(spark: SparkSession) -> None:
    """The offsets of rows, those that delete, and of malformed records; a tombstone without a key deletes nothing."""
    found = {}
    for given in (JSON, CSV, TEXT, BYTES):
        for on_tombstone in OnTombstone:
            format_ = Format.model_validate({**given, "onTombstone": on_tombstone, "onMalformed": "DeadLetter"})
            found[str(given.get("type", "Json")), given["schema"], str(on_tombstone)] = outcome(spark, format_)
    nothing: list[int] = []
    assert found == {
        ("Json", "id BIGINT NOT NULL", "Fail"): ([0], nothing, [1, 2, 3]),
        ("Json", "id BIGINT NOT NULL", "Skip"): ([0], nothing, [3]),
        ("Json", "id BIGINT NOT NULL", "Delete"): ([0, 1], [1], [2, 3]),
        ("Csv", "id BIGINT", "Fail"): ([3], nothing, [0, 1, 2]),
        ("Csv", "id BIGINT", "Skip"): ([3], nothing, [0]),
        ("Csv", "id BIGINT", "Delete"): ([1, 3], [1], [0, 2]),
        ("Raw", "value STRING", "Fail"): ([0, 3], nothing, [1, 2]),
        ("Raw", "value STRING", "Skip"): ([0, 3], nothing, nothing),
        ("Raw", "value STRING", "Delete"): ([0, 1, 3], [1], [2]),
        ("Raw", "value BINARY NOT NULL", "Fail"): ([0, 3], nothing, [1, 2]),
        ("Raw", "value BINARY NOT NULL", "Skip"): ([0, 3], nothing, nothing),
        ("Raw", "value BINARY NOT NULL", "Delete"): ([0, 1, 3], [1], [2]),
    }


def outcome(spark: SparkSession, given: Format) -> tuple[list[int], list[int], list[int]]:
    """Return the offsets of the records that yield a row, that delete, and that are malformed."""
    reader = KafkaReader(KafkaSource(bootstrap_servers="kafka:9092", topics=("orders",)), given)
    records = reader.letters(spark, [letter_of(offset, key, value) for offset, (key, value) in enumerate(RECORDS)])
    named = reader.columns(records)
    parsed = formats.well_formed(records, named, given).collect()
    malformed = formats.malformed_records(records, named, given).collect()
    return (
        sorted(row["_offset"] for row in parsed),
        sorted(row["_offset"] for row in parsed if row.asDict().get("_deleted")),
        sorted(row["_position"] for row in malformed),
    )


def letter_of(offset: int, key: bytes | None, value: bytes | None) -> RecordedLetter:
    """Return a record as a dead letter keeps it."""
    position = (Partition("orders", 0), offset)
    row = LetterRow(("orders", "id", 0, offset), *position, "id", BatchNumber(1), "", "")
    return RecordedLetter(row, LetterStatus.KEPT, None, key, value, datetime.now(UTC), None, None)
