"""What the log says of a file: values of its partition, and statistics by which readers leave it out and lose no row."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.connectors.delta.spec import DeltaSink
from exactlyonce.errors import SecretRefused
from exactlyonce_spark.connectors.delta.connector import _PATIENCE, storage_options
from exactlyonce_spark.connectors.delta.statistics import facts_of
from tests.delta_rig import DeltaStream
from tests.resource_documents import document
from tests.simulation.database import MemoryDatabase, MemoryLedger


@pytest.fixture
def stream(tmp_path: Path) -> DeltaStream:
    return DeltaStream(tmp_path / "table", MemoryLedger(MemoryDatabase()))


@pytest.mark.parametrize("days", [("a/b:c", "100%25 ü"), (None, "2024-01-02"), ('x="{[y]}"', "é=1?")])
def test_rows_are_read_with_the_partition_that_they_had(stream: DeltaStream, days: tuple[str | None, str]) -> None:
    stream.partition_by, stream.days = ("day",), days
    stream.land(stream.driver(), 1, 2)
    stream.require(2)
    rows = stream.table().to_pyarrow_table().to_pylist()
    assert {row["id"]: row["day"] for row in rows} == {2: days[0], 3: days[1], 4: days[0], 5: days[1]}
    found = stream.table().to_pyarrow_table(filters=[("day", "=", days[1])])
    assert {*found["id"].to_pylist()} == {3, 5}


def facts(tmp_path: Path, table: pa.Table, *types: str, row_group_size: int | None = None) -> dict[str, Any]:
    """What is said of a table that Spark has written with these types."""
    fields = [{"name": name, "type": type_} for name, type_ in zip(table.column_names, types, strict=True)]
    metadata = {b"org.apache.spark.sql.parquet.row.metadata": json.dumps({"fields": fields}).encode()}
    pyarrow.parquet.write_table(
        table.replace_schema_metadata(metadata), tmp_path / "file.parquet", row_group_size=row_group_size
    )
    found: dict[str, Any] = json.loads(facts_of(pyarrow.parquet.read_metadata(tmp_path / "file.parquet")).statistics)
    return found


def test_bounds_of_a_file_are_those_of_all_its_row_groups(tmp_path: Path) -> None:
    table = pa.table({"id": [5, None, -7, 9], "text": ["b", "ab", None, "é"], "day": [date(2024, 1, 2)] * 4})
    assert facts(tmp_path, table, "long", "string", "date", row_group_size=1) == {
        "numRecords": 4,
        "minValues": {"id": -7, "text": "ab", "day": "2024-01-02"},
        "maxValues": {"id": 9, "text": "é", "day": "2024-01-02"},
        "nullCount": {"id": 1, "text": 1, "day": 0},
    }


def test_moments_are_cut_to_milliseconds_below_and_rounded_up_above(tmp_path: Path) -> None:
    moments = [datetime(2024, 1, 2, 3, 4, 5, 123456, UTC), datetime(2024, 1, 2, 3, 4, 5, 999001, UTC)]
    table = pa.table(
        {
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "local": pa.array([moment.replace(tzinfo=None) for moment in moments], pa.timestamp("us")),
        }
    )
    found = facts(tmp_path, table, "timestamp", "timestamp_ntz")
    assert found["minValues"] == {"at": "2024-01-02T03:04:05.123Z", "local": "2024-01-02T03:04:05.123"}
    assert found["maxValues"] == {"at": "2024-01-02T03:04:06.000Z", "local": "2024-01-02T03:04:06.000"}


def test_a_column_whose_bounds_are_not_exact_has_none(tmp_path: Path) -> None:
    late = pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))  # a year that Python does not have
    table = pa.table(
        {
            "long_text": ["x" * 65],
            "price": [Decimal("1.10")],
            "nothing": pa.array([None], pa.int64()),
            "ratio": [float("inf")],
            "raw": [b"x"],
            "yes": [True],
            "late": late,
        }
    )
    found = facts(tmp_path, table, "string", "decimal(3,2)", "long", "double", "binary", "boolean", "timestamp")
    assert found["minValues"] == found["maxValues"] == {}
    assert found["nullCount"]["nothing"] == 1


def test_readers_that_leave_files_out_by_their_statistics_find_each_row(stream: DeltaStream) -> None:
    stream.land(stream.driver(), 1, 4)
    dataset = stream.table().to_pyarrow_dataset()
    for number in range(2, 10):
        is_it = pyarrow.dataset.field("id") == number
        assert dataset.to_table(filter=is_it)["id"].to_pylist() == [number]
        assert len(list(dataset.get_fragments(is_it))) == 1, "the others are left out"


def sink_on_s3(**fields: object) -> DeltaSink:
    where = {"location": "s3a://lake/orders", "secretRef": {"name": "lake"}, **fields}
    changes = {"spec.sink": {"delta": where}, "spec.checkpoint": {"local": {"path": "/c"}}}
    ledger = {"spec.ledger": {"objectLog": {"location": "/ledger"}}}
    spec = parse_stream(document({**changes, **ledger}), "the test").spec.sink.spec
    assert isinstance(spec, DeltaSink)
    return spec


def test_the_library_is_told_of_the_service_and_creates_versions_on_a_condition() -> None:
    secret = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key\n", "password": "another's"}
    assert storage_options(sink_on_s3(endpoint="http://s3:9000", pathStyle=True), secret) == {
        **_PATIENCE,
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "key",
        "aws_conditional_put": "etag",
        "aws_virtual_hosted_style_request": "false",
        "aws_endpoint": "http://s3:9000",
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
    }
    assert storage_options(DeltaSink(location="/lake/orders"), secret) == {}
    with pytest.raises(SecretRefused, match="add the certificate to those that the driver's image trusts"):
        storage_options(sink_on_s3(), {**secret, "ca.crt": "-----BEGIN CERTIFICATE-----"})
