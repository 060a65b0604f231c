"""From Kafka's bytes to rows: Json, Csv and Raw, malformed records under both policies, transforms in SQL and Python."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from exactlyonce.reconcile.loop import Done, Halted
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import in_full, one_or_all
from tests.rig import Rig

LARGE, BEFORE_COMMIT = 2400, "land.before-commit@2=kill-driver"
"""Records a batch that tasks write; the driver writes smaller ones itself."""

MALFORMED: dict[str, bytes | None] = {
    "no JSON": b"not json",
    "cut off": b'{"id": 5, "customer": "cu',
    "another type": b'{"id": "five"}',
    "two objects": b'{"id": 5}\n{"id": 6}',
    "an array": b'[{"id": 5}]',
    "a value that must be there": b'{"customer": "nobody"}',
    "bytes that are no UTF-8": '{"id": 5, "customer": "Müller"}'.encode("latin-1"),
    "a tombstone": None,
}
SCHEMA = "id BIGINT NOT NULL, customer STRING, amount DECIMAL(12,2), ts TIMESTAMP"


def produce_with_malformed(rig: Rig) -> dict[int, bytes | None]:
    """Two batches of LARGE; in the second one partition 1 begins with the malformed records. Returns them by offset."""
    rig.produce(LARGE)
    rig.send([(1, value) for value in MALFORMED.values()])
    for partition in (0, 2, 3):
        rig.produce(len(MALFORMED), partition=partition)
    rig.produce(LARGE - 4 * len(MALFORMED))
    return {LARGE // 4 + place: value for place, value in enumerate(MALFORMED.values())}


def dead_letters(rig: Rig) -> list[tuple[Any, ...]]:
    found = rig.sql(
        "select topic, partition, record_offset, value from exactlyonce.dead_letters order by record_offset"
    )
    return [(*row[:3], None if row[3] is None else bytes(row[3])) for row in found]


@pytest.mark.parametrize(
    ("commit", "failures", "crash"),
    one_or_all(
        [
            # A failure that is tried again: test_bad_input.py. A batch that had landed: tests/faults/test_crash_points.py.
            ("Batch", *in_full((2, f"{BEFORE_COMMIT} batch.landed@2=kill-driver"), otherwise=(1, BEFORE_COMMIT))),
            ("Partition", 1, "task.before-commit@2=kill-driver task.committed@2=kill-driver"),
        ]
    ),
)
def test_malformed_records_halt_the_stream_until_they_may_be_dead_letters(
    rig: Rig, commit: str, failures: int, crash: str
) -> None:
    rig.overrides |= {
        "spec.source.format": {"schema": SCHEMA},
        "spec.source.kafka.maxOffsetsPerTrigger": LARGE,
        "spec.sink.postgres.commit": commit,
        "spec.recovery.maxFailuresPerBatch": failures,
    }
    malformed = produce_with_malformed(rig)
    result = rig.run()
    assert isinstance(result, Halted)
    assert f"Batch 2 has failed {failures} times" in result.message
    first = LARGE // 4
    assert (
        f"Malformed record in topic {rig.name} partition 1 offset {first}: the record is not JSON: " in result.message
    )
    assert "set source.format.onMalformed to DeadLetter" in result.message
    landed = rig.counts()
    assert set(landed.values()) == {1}
    if commit == "Batch":
        assert sorted(landed) == list(range(LARGE)), "batch 1 and nothing of batch 2"
    assert dead_letters(rig) == []
    rig.overrides["spec.recovery.maxFailuresPerBatch"] = 10
    rig.overrides["spec.source.format"] = {"schema": SCHEMA, "onMalformed": "DeadLetter"}
    assert rig.run(crash=crash) == Done(completed=True), rig.story()
    rig.assert_exactly_once()
    assert dead_letters(rig) == [(rig.name, 1, offset, value) for offset, value in malformed.items()]


def test_a_malformed_record_fails_the_batch_even_if_the_transform_would_not_look_at_it(rig: Rig) -> None:
    """Neither a filter on what was parsed nor one on what Kafka says of a record is applied before the check."""
    looks_elsewhere = "(amount > 0 OR customer IS NOT NULL) AND _partition < 2"
    rig.overrides |= {
        "spec.transform": {"sql": f"SELECT _offset AS id FROM source WHERE {looks_elsewhere}"},
        "spec.recovery.maxFailuresPerBatch": 1,
    }
    rig.produce(20)
    rig.send([(2, b'{"id": 1, "amount": -5} and more')])
    result = rig.run()
    assert isinstance(result, Halted)
    assert (
        f"Malformed record in topic {rig.name} partition 2 offset 5: the record has more after its value"
        in result.message
    )
    assert rig.landed() == 0


def test_csv_lands_with_its_options_and_dead_letters(rig: Rig) -> None:
    rig.overrides["spec.source.format"] = {
        "type": "Csv", "schema": SCHEMA, "onMalformed": "DeadLetter",
        "options": {"sep": ";", "nullValue": "NULL"},
    }  # fmt: skip
    good = [
        b"1;plain;1.50;2026-01-02T03:04:00Z",
        b'2;"a;b ""quoted""\nand more";-2;NULL',
        b"3;NULL;NULL;NULL",
        "4;Mü日;0.01;2025-12-31 23:59:00".encode(),
    ]
    bad: list[bytes | None] = [
        b"5;too few", b"6;a;1;NULL;too many", b"six;a;1;NULL", b"7;a;1;02.01.2026 03:04", b"NULL;a;1;NULL",
        b"8;a;1;NULL\n9;b;1;NULL", b"10;M\xfcller;1;NULL", b"", None,
    ]  # fmt: skip
    rig.send([(0, value) for value in good] + [(3, value) for value in bad])
    assert rig.run() == Done(completed=True), rig.story()
    assert rig.sql("select id, customer, amount, ts from orders order by id") == [
        (1, "plain", Decimal("1.50"), datetime(2026, 1, 2, 3, 4, tzinfo=UTC)),
        (2, 'a;b "quoted"\nand more', Decimal("-2.00"), None),
        (3, None, None, None),
        (4, "Mü日", Decimal("0.01"), datetime(2025, 12, 31, 23, 59, tzinfo=UTC)),
    ]
    assert dead_letters(rig) == [(rig.name, 3, offset, value) for offset, value in enumerate(bad)]


@dataclass(frozen=True)
class Sent:
    """A record as the broker took it."""

    partition: int
    offset: int
    milliseconds: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


def send_with_headers(
    rig: Rig, records: Sequence[tuple[int, bytes | None, bytes | None, Mapping[str, bytes]]]
) -> list[Sent]:
    """Produce partition, key, value and headers of each, and return them, in this order, with what the broker said."""
    sent: list[Sent] = []
    producer = Producer({"bootstrap.servers": rig.kafka.bootstrap_servers})
    for place, (partition, key, value, headers) in enumerate(records):

        def taken(error: KafkaError | None, message: Message, headers: Mapping[str, bytes] = headers) -> None:
            assert error is None
            where = (message.partition(), message.offset(), message.timestamp()[1])
            sent.append(Sent(*where, message.key(), message.value(), headers))

        producer.produce(
            rig.name,
            value,
            key,
            partition,
            timestamp=1_700_000_000_123 + place,
            headers=dict(headers),
            on_delivery=taken,
        )
    assert producer.flush(30) == 0
    return sorted(sent, key=lambda record: record.milliseconds)


def test_raw_text_lands_with_all_that_kafka_says_of_a_record(rig: Rig) -> None:
    rig.sql(
        "create table raw_text (topic text, part int, off bigint, at timestamptz, key bytea, headers text[], value text)"
    )
    rig.overrides |= {
        "spec.source.format": {"type": "Raw", "schema": "value STRING", "onMalformed": "DeadLetter"},
        "spec.sink.postgres.table": "raw_text",
        "spec.transform": {
            "sql": "SELECT _topic AS topic, _partition AS part, _offset AS off, _timestamp AS at, _key AS key, value, "
            "transform(_HEADERS, h -> concat(h.key, '=', cast(h.value AS STRING))) AS headers "
            "FROM source WHERE value NOT LIKE 'skip%'"
        },
    }
    texts = ["plain", "", 'ä,"\n', "{not json", "skip this one"]
    sent = send_with_headers(
        rig,
        [
            *((number % 4, text.encode(), text.encode(), {"kind": b"text", "n": str(number).encode()})
              for number, text in enumerate(texts)),
            (2, None, b"no key and no headers", {}),
            (3, b"\0\xff", b"not \xff UTF-8", {}),
            (3, b"\0\xff", None, {}),
        ],
    )  # fmt: skip
    assert rig.run() == Done(completed=True), rig.story()
    found = rig.sql("select topic, part, off, at, key, headers, value from raw_text")
    expected = [
        (
            rig.name, record.partition, record.offset, datetime.fromtimestamp(record.milliseconds / 1000, UTC), record.key,
            [f"{key}={value.decode()}" for key, value in record.headers.items()] or None, record.value.decode(),
        )
        for record in sent[:-2] if record.value is not None and not record.value.startswith(b"skip")
    ]  # fmt: skip
    by_position = {(row[1], row[2]): (*row[:4], None if row[4] is None else bytes(row[4]), *row[5:]) for row in found}
    assert by_position == {(row[1], row[2]): row for row in expected}
    assert len(found) == len(expected)
    assert dead_letters(rig) == [(rig.name, 3, record.offset, record.value) for record in sent if record in sent[-2:]]
    assert rig.sql("select error from exactlyonce.dead_letters order by record_offset") == [
        ("the record is not UTF-8: byte 4 is 0xff",), ("the value is null (a tombstone)",)
    ]  # fmt: skip


PYTHON_TRANSFORM = """
def latest_only(rows):
    return rows.selectExpr("_offset as id", "value").where(f"_partition = 0 and _offset >= {FROM}")
FROM = 2400
"""


def test_raw_bytes_land_through_a_python_transform_that_leaves_no_row_of_the_first_batch(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    rig = Rig(kafka, postgres_18, tmp_path, name, partitions=1)
    (tmp_path / "transforms_of_a_test.py").write_text(PYTHON_TRANSFORM)
    rig.sql("create table raw_bytes (id bigint, value bytea)")
    rig.overrides |= {
        "spec.source.format": {"type": "Raw", "schema": "value BINARY"},
        "spec.source.kafka.maxOffsetsPerTrigger": LARGE,
        "spec.sink.postgres.table": "raw_bytes",
        "spec.transform": {"python": {"module": "transforms_of_a_test", "function": "latest_only"}},
    }
    values = [b"", bytes(range(256)), None, b"\xff\0\n", b"\\x00"]
    rig.send([(0, json.dumps(number).encode()) for number in range(LARGE)])
    rig.send([(0, value) for value in values])
    assert rig.run(environment=with_python_path(tmp_path)) == Done(completed=True), rig.story()
    found = rig.sql("select id, value from raw_bytes order by id")
    assert [(key, None if value is None else bytes(value)) for key, value in found] == [
        (LARGE + place, value) for place, value in enumerate(values)
    ]


def with_python_path(folder: Path) -> dict[str, str]:
    """The environment of a driver that finds modules in a folder."""
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}
