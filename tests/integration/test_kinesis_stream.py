"""Streams from Kinesis, as they are run: drivers are killed, shards split and merged, and ids counted in the table."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.reconcile.loop import Done
from testbed import kcl
from testbed.kinesis import Kinesis
from testbed.postgres import Postgres
from tests.combinations import in_full, only_in_full
from tests.kinesis_in_memory import aggregated
from tests.rig import Rig

SHARDS = 4


def shard(number: int) -> str:
    return f"shardId-{number:012}"


@pytest.fixture
def kinesis(tmp_path: Path) -> Iterator[Kinesis]:
    with Kinesis(tmp_path / "stand-in") as server:
        yield server


class KinesisRig(Rig):
    """A stream over Kinesis; every fourth record is an aggregate of ten user records."""

    def __init__(self, kinesis: Kinesis, server: Postgres, folder: Path, name: str, **overrides: Any) -> None:
        self.kinesis = kinesis
        source = {
            "kinesis": {
                "streamName": name,
                "region": "us-east-1",
                "endpoint": kinesis.endpoint,
                "secretRef": {"name": "aws"},
                "maxRecordsPerTrigger": 400,
            },
            "format": {"schema": "id BIGINT, customer STRING"},
        }
        super().__init__(None, server, folder, name, {"spec.source": source, **overrides}, partitions=SHARDS)  # type: ignore[arg-type] # there is no Kafka

    def __post_init__(self) -> None:
        self.kinesis.create_stream(self.name, SHARDS)
        self.postgres.create_database(self.name)
        self.sql("create table orders (id bigint, customer text)")
        self.write_secret()
        self.write_login("aws", {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"})

    def document(self, changes: Any = None) -> dict[str, Any]:
        """Return the resource, whose source is not Kafka."""
        self.kafka = _NoKafka()  # type: ignore[assignment] # named in what the overrides replace
        return super().document(changes)

    def put(self, records: int) -> None:
        """Put records with new ids."""
        sent = []
        for number in range(records):
            first = len(self.produced)
            ids = list(range(first, first + (10 if number % 4 == 0 else 1)))
            texts = [json.dumps({"id": each, "customer": f"customer {each % 7}"}) for each in ids]
            key = str(first)
            sent.append((key, aggregated(texts, key) if len(texts) > 1 else texts[0].encode()))
            self.produced += ids
        self.kinesis.put(self.name, *sent)


class _NoKafka:
    bootstrap_servers = ""


def test_every_id_lands_once_though_shards_are_split_and_merged_and_drivers_killed(
    kinesis: Kinesis, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    rig = KinesisRig(kinesis, postgres_18, tmp_path, name)
    rig.put(300)
    kinesis.split(name, shard(0))
    kinesis.merge(name, shard(2), shard(3))
    rig.put(300)
    # A batch that has landed is recognised by the ledger alone, whatever the source is: tests/faults/test_crash_points.py.
    crash, verdicts = in_full(
        ("land.before-commit@2=kill-driver batch.landed@4=kill-driver", {"ReplayBatch", "SkipLanded"}),
        otherwise=("land.before-commit@2=kill-driver", {"ReplayBatch"}),
    )
    result = rig.run(crash=crash)
    assert isinstance(result, Done), rig.story()
    rig.assert_exactly_once()
    assert verdicts <= set(rig.verdicts()), rig.story()
    # The stream goes on behind what landed, in the children too.
    rig.put(40)
    assert isinstance(rig.run(), Done), rig.story()
    rig.assert_exactly_once()


HANDED_OVER_RECORDS = int(os.environ.get("HANDED_OVER_RECORDS", "10260"))
"""Before each handover; about 3.25 ids each, so 100,000 ids."""


@only_in_full  # without Spark: tests/integration/test_kinesis_client_library.py
def test_streams_and_a_kinesis_client_library_hand_a_data_stream_to_each_other_and_each_id_is_taken_once(
    kinesis: Kinesis, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    table = {"tableName": "shop-orders", "endpoint": kinesis.endpoint}
    shared = {
        "spec.source.kinesis.streamName": name,
        "spec.source.kinesis.leaseTable": table,
        "spec.source.kinesis.maxRecordsPerTrigger": 8000,
    }
    first = KinesisRig(kinesis, postgres_18, tmp_path / "first", name, **shared)
    start = {"spec.source.kinesis.start": {"from": "LeaseTable"}}
    second = KinesisRig(kinesis, postgres_18, tmp_path / "second", f"{name}x", **shared, **start)
    given: list[int] = []

    def consume(most: int) -> None:
        records = kcl.consume(kinesis, name, "shop-orders", tmp_path / "kcl", most, seconds=600)
        given.extend(json.loads(record.data)["id"] for record in records)

    def assert_each_once() -> None:
        found = first.counts() + second.counts() + Counter(given)
        assert found == Counter(range(len(first.produced))), f"{first.story()}\n{second.story()}"

    first.put(HANDED_OVER_RECORDS)
    kinesis.split(name, shard(0))
    first.put(4)
    assert isinstance(first.run(), Done), first.story()
    assert "LandedNotShown" not in [kind for kind, _ in first.events], first.story()
    assert_each_once()
    before = len(first.produced)
    kinesis.merge(name, shard(2), shard(3))
    first.put(HANDED_OVER_RECORDS)
    consume(len(first.produced) - before - 7)  # somewhere, in an aggregate or not
    first.put(HANDED_OVER_RECORDS)
    assert isinstance(second.run(), Done), second.story()
    assert_each_once()
    first.put(40)
    consume(len(first.produced) - first.landed() - second.landed() - len(given))
    assert_each_once()
