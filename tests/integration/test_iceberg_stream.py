"""Iceberg tables by Spark's own writer, in a catalog on Postgres, on a disk and on S3, and a whole stream: each id once.

Ids are counted by pyiceberg, and by DuckDB and pyarrow in the files that its scan plans. What a table does by itself is in
tests/unit/test_iceberg_*.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from exactlyonce.reconcile.loop import Done, Halted
from exactlyonce_spark.connectors.iceberg.connector import SINK
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

TABLE = "shop.orders"


@pytest.fixture(scope="module")
def bucket(s3: S3) -> str:
    return new_bucket(s3)


@pytest.fixture(scope="module")
def spark(s3: S3, bucket: str) -> Iterator[SparkSession]:
    with local_session("iceberg", settings_of_spark(s3, bucket, s3.endpoint)) as session:
        yield session


def login(postgres: Postgres, name: str) -> dict[str, str]:
    """The login to the database with the catalog."""
    return {
        "host": postgres.host,
        "port": str(postgres.port),
        "dbname": name,
        "user": "postgres",
        "password": postgres.password,
    }


def sink(location: str, **more: object) -> Mapping[str, Any]:
    catalog = {"sql": {"secretRef": {"name": "catalog"}}}
    return {"iceberg": {"catalog": catalog, "table": TABLE, "location": location, **more}}


def table_of(postgres: Postgres, name: str, **files: str) -> Table:
    """The table as anybody opens it."""
    uri = f"postgresql+psycopg2://postgres:{postgres.password}@{postgres.host}:{postgres.port}/{name}"
    return SqlCatalog("default", uri=uri, **files).load_table(TABLE)


def test_on_a_disk_drivers_die_at_each_point_and_somebody_else_appends(
    spark: SparkSession,
    postgres_18: Postgres,
    database: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = tmp_path / "table"
    stream = Stream(spark, SINK, sink(str(where), partitionBy=["day"]), {"catalog": login(postgres_18, name)})
    foreign: list[int] = []

    def appends(number: int) -> None:
        foreign.append(10_000 + number)
        table_of(postgres_18, name).append(pa.table({"id": [10_000 + number], "day": ["d/1"]}))

    last = land_through_deaths(stream, monkeypatch, appends)
    table = table_of(postgres_18, name)
    rows = table.scan().to_arrow().to_pylist()
    expected = Counter([*range(RECORDS * last), *foreign])
    assert Counter(row["id"] for row in rows) == expected
    assert {row["day"] for row in rows if row["id"] < 10_000 and row["id"] % 2} == {"d/1"}
    assert {row["id"] % 2 for row in table.scan("day = 'd/0'").to_arrow().to_pylist()} == {0}
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    assert Counter(ids_by_duckdb(files)) == expected
    assert Counter(number for file in files for number in _ids_by_pyarrow(file)) == expected

    table.overwrite(table.scan().to_arrow())
    table = table_of(postgres_18, name)
    old = [it.snapshot_id for it in table.snapshots()[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    stream.land(stream.next_driver(), last + 1, last + 1)
    assert len(table_of(postgres_18, name).scan().to_arrow()) == RECORDS * (last + 1) + len(foreign)


def _ids_by_pyarrow(file: str) -> list[int]:
    column = pyarrow.parquet.ParquetFile(file).read(columns=["id"])["id"]
    return [number for number in column.to_pylist() if isinstance(number, int)]


def test_on_s3_drivers_die_at_each_point_of_a_commit(
    spark: SparkSession,
    s3: S3,
    bucket: str,
    postgres_18: Postgres,
    database: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = f"s3a://{bucket}/{name}"
    given = sink(where, endpoint=s3.endpoint, pathStyle=True, secretRef={"name": "lake"}, partitionBy=["day"])
    stream = Stream(spark, SINK, given, {"lake": s3.secret(), "catalog": login(postgres_18, name)})
    points = ("batch.landed", "table.before-commit")
    last = land_through_deaths(stream, monkeypatch, lambda number: None, points)
    secret = s3.secret()
    options = {
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": secret["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": secret["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }
    rows = table_of(postgres_18, name, **options).scan().to_arrow().to_pylist()
    assert Counter(row["id"] for row in rows) == Counter(range(RECORDS * last))
    assert {row["day"] for row in rows if row["id"] % 2} == {"d/1"}


def test_each_value_is_read_as_it_was(
    spark: SparkSession, postgres_18: Postgres, database: str, name: str, tmp_path: Path
) -> None:
    stream = Stream(spark, SINK, sink(str(tmp_path / "t")), {"catalog": login(postgres_18, name)}, columns=awkward)
    stream.land(stream.driver(), 1, 2)
    table = table_of(postgres_18, name)
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert {number: [rows[number][f"text{at}"] for at in range(PER_RECORD)] for number in rows} == {
        number: texts_of(number) for number in range(2 * RECORDS)
    }
    for number, row in rows.items():
        moment, local, day, price = (values[number % 4] for values in (MOMENTS, LOCAL_MOMENTS, DAYS, PRICES))
        assert row["at"] == (moment and datetime.fromisoformat(f"{moment}+00:00"))
        assert row["local_at"] == (local and datetime.fromisoformat(local))
        assert row["day"] == (day and date.fromisoformat(day))
        assert row["price"] == (price and Decimal(price))
    assert table.scan("id = 5").to_arrow()["id"].to_pylist() == [5]
    planned = [task.file for task in table.scan("id >= 6").plan_files()]
    assert 0 < len(planned) < len(list(table.scan().plan_files())), "readers leave out files by their statistics"


def test_a_stream_whose_driver_is_killed_before_its_commit_has_each_id_once(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    overrides = {
        "spec.sink": sink(str(tmp_path / "out")),
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
        "spec.source.kafka.maxOffsetsPerTrigger": 20,
    }
    rig = Rig(kafka, postgres_18, tmp_path, name, overrides, partitions=2)
    rig.write_login("catalog", login(postgres_18, name))
    rig.produce(60)
    result = rig.run(crash="table.before-commit@2=kill-driver")
    assert isinstance(result, Done), rig.story()
    table = table_of(postgres_18, name)
    assert Counter(table.scan().to_arrow()["id"].to_pylist()) == Counter(rig.produced), rig.story()
    assert rig.verdicts() == ["FirstStart", "SkipLanded"]
    told = [it.summary for it in table.snapshots() if it.summary is not None]
    assert [(it["exactlyonce.batch"], it["exactlyonce.epoch"]) for it in told] == [("1", "1"), ("2", "2"), ("3", "2")]
    assert records_told([str(it["exactlyonce.positions"]) for it in told], name) == 60

    with table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(table.snapshots()[1].snapshot_id)
    halted = rig.run()
    assert isinstance(halted, Halted), rig.story()
    assert "which is before batch 3 of this stream" in halted.message
