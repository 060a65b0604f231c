"""Delta tables by Spark's own writer, on a disk and on S3, and a whole stream: each id once, as deltalake and DuckDB count.

A driver that dies is a `Killed` here, raised at a named point; in the whole stream it is killed. What a table does by itself is
in tests/unit/test_delta_*.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from exactlyonce.reconcile.loop import Done, Halted
from exactlyonce_spark.connectors.delta.connector import SINK
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.s3 import S3
from testbed.spark import local_session
from tests.awkward_rows import DAYS, LOCAL_MOMENTS, MOMENTS, PER_RECORD, PRICES, awkward, texts_of
from tests.delta_rig import ids_by_duckdb
from tests.files_on_s3 import new_bucket, settings_of_spark
from tests.files_rig import RECORDS
from tests.rig import Rig
from tests.table_streams import Stream, land_through_deaths, records_told

pytestmark = pytest.mark.seconds(20)


@pytest.fixture(scope="module")
def bucket(s3: S3) -> str:
    return new_bucket(s3)


@pytest.fixture(scope="module")
def spark(s3: S3, bucket: str) -> Iterator[SparkSession]:
    with local_session("delta", settings_of_spark(s3, bucket, s3.endpoint)) as session:
        yield session


def test_on_a_disk_drivers_die_at_each_point_and_somebody_else_appends(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = str(tmp_path / "table")
    stream = Stream(spark, SINK, {"delta": {"location": where, "partitionBy": ["day"]}})
    foreign: list[int] = []

    def appends(number: int) -> None:
        foreign.append(10_000 + number)
        write_deltalake(where, pa.table({"id": [10_000 + number], "day": ["d/1"]}), mode="append")

    last = land_through_deaths(stream, monkeypatch, appends)
    table = DeltaTable(where)
    rows = table.to_pyarrow_table().to_pylist()
    assert Counter(row["id"] for row in rows) == Counter([*range(RECORDS * last), *foreign])
    assert {row["day"] for row in rows if row["id"] < 10_000 and row["id"] % 2} == {"d/1"}
    assert Counter(ids_by_duckdb(table.file_uris())) == Counter(row["id"] for row in rows)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    stream.land(stream.next_driver(), last + 1, last + 1)
    assert len(DeltaTable(where).to_pyarrow_table()) == RECORDS * (last + 1) + len(foreign)
    left = {path.name for path in Path(where).rglob("*.parquet") if "_delta_log" not in path.parts}
    assert left == {Path(uri).name for uri in DeltaTable(where).file_uris()}, (
        "VACUUM removes what drivers left that died"
    )


def test_on_s3_drivers_die_at_each_point_of_a_commit(
    spark: SparkSession, s3: S3, bucket: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request is lost here: the library keeps Python's lock during some, so that no proxy of this process could answer."""
    where = f"s3a://{bucket}/{name}"
    sink = {"location": where, "endpoint": s3.endpoint, "pathStyle": True, "secretRef": {"name": "lake"}}
    stream = Stream(spark, SINK, {"delta": {**sink, "partitionBy": ["day"]}}, {"lake": s3.secret()})
    points = ("files.folder-removed", "batch.landed", "table.before-commit")
    last = land_through_deaths(stream, monkeypatch, lambda number: None, points)
    options = {**s3.secret(), "aws_endpoint": s3.endpoint, "aws_allow_http": "true", "aws_region": "us-east-1"}
    rows = DeltaTable(where.replace("s3a", "s3"), storage_options=options).to_pyarrow_table().to_pylist()
    assert Counter(row["id"] for row in rows) == Counter(range(RECORDS * last))
    assert {row["day"] for row in rows if row["id"] % 2} == {"d/1"}


def test_each_value_is_read_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "table")
    stream = Stream(spark, SINK, {"delta": {"location": where}}, columns=awkward)
    stream.land(stream.driver(), 1, 2)
    rows = {row["id"]: row for row in DeltaTable(where).to_pyarrow_table().to_pylist()}
    assert {number: [rows[number][f"text{at}"] for at in range(PER_RECORD)] for number in rows} == {
        number: texts_of(number) for number in range(2 * RECORDS)
    }
    for number, row in rows.items():
        moment, local, day, price = (values[number % 4] for values in (MOMENTS, LOCAL_MOMENTS, DAYS, PRICES))
        assert row["at"] == (moment and datetime.fromisoformat(f"{moment}+00:00"))
        assert row["local_at"] == (local and datetime.fromisoformat(local))
        assert row["day"] == (day and date.fromisoformat(day))
        assert row["price"] == (price and Decimal(price))


def test_a_stream_whose_driver_is_killed_before_its_commit_has_each_id_once(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    overrides = {
        "spec.sink": {"delta": {"location": str(tmp_path / "out")}},
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
        "spec.source.kafka.maxOffsetsPerTrigger": 20,
    }
    rig = Rig(kafka, postgres_18, tmp_path, name, overrides, partitions=2)
    rig.produce(60)
    result = rig.run(crash="table.before-commit@2=kill-driver")
    assert isinstance(result, Done), rig.story()
    table = DeltaTable(str(tmp_path / "out"))
    assert Counter(table.to_pyarrow_table()["id"].to_pylist()) == Counter(rig.produced), rig.story()
    assert rig.verdicts() == ["FirstStart", "SkipLanded"]
    ours = [commit["exactlyonce"] for commit in table.history() if "exactlyonce" in commit]
    assert [(it["batch"], it["epoch"]) for it in ours if "batch" in it] == [(3, 2), (2, 2), (1, 1)]
    assert records_told([it["positions"] for it in reversed(ours) if "batch" in it], name) == 60

    table.restore(1)
    halted = rig.run()
    assert isinstance(halted, Halted), rig.story()
    assert "restored it to version 1, which is before the latest rows of this stream" in halted.message
