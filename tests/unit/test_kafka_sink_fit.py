"""What a record of Kafka is made of, and what does not fit: told before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exactlyonce.api.resource import read_streams
from exactlyonce.connectors.kafka.sink_spec import KafkaSink
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce_spark.connectors.kafka.sink_checks import Topic, require_not_read, require_topic
from exactlyonce_spark.connectors.kafka.sink_errors import KafkaRefuses
from exactlyonce_spark.connectors.kafka.sink_fit import RecordUnfit, fit_record
from exactlyonce_spark.connectors.ports import YieldedColumn

TOPIC = Topic("cluster-1", partitions=3, replicas=3, most_bytes=1_000_000, least_in_sync=2, is_compacted=False)


def sink(**changed: Any) -> KafkaSink:
    return KafkaSink.model_validate({"bootstrapServers": "a:9092", "topic": "rows", **changed})


def yielded(**types: str) -> list[YieldedColumn]:
    return [YieldedColumn(name, kind) for name, kind in types.items()]


def fitted(columns: list[YieldedColumn], **changed: Any) -> dict[str, str]:
    return {column.name: column.expression for column in fit_record(columns, sink(**changed))}


def test_without_anything_said_the_value_is_a_json_object_of_all_columns_and_there_is_no_key() -> None:
    found = fitted(yielded(id="bigint", when="timestamp"))
    assert found["key"] == "cast(null as binary)"
    assert "named_struct('id', `id`, 'when', `when`)" in found["value"]
    assert "'ignoreNullFields', 'false'" in found["value"], "a column that is NULL is told as null"
    assert "SSSSSSXXX" in found["value"], "microseconds are kept"


def test_key_and_headers_are_left_out_of_the_value() -> None:
    found = fitted(yielded(k="string", id="bigint", h="binary"), key="k", headers=[{"name": "from", "column": "h"}])
    assert found["key"] == "cast(`k` as binary)"
    assert found["from"] == "cast(`h` as binary)"
    assert "named_struct('id', `id`)" in found["value"]
    assert list(found) == ["key", "value", "from"]


def test_a_value_of_a_column_is_handed_over_as_it_is() -> None:
    assert fitted(yielded(v="binary"), value="v")["value"] == "cast(`v` as binary)"


def test_names_that_spark_would_read_as_something_else_are_quoted() -> None:
    assert r"named_struct('it\'s', `it's`, 'a`b', `a``b`)" in fitted(yielded(**{"it's": "int", "a`b": "int"}))["value"]


@pytest.mark.parametrize(
    ("columns", "changed", "words"),
    [
        (
            yielded(id="bigint"),
            {"key": "k"},
            "sink.kafka.key names column k, which the query does not yield .it yields id.",
        ),
        (
            yielded(k="bigint", v="string"),
            {"key": "k", "value": "v"},
            "column k, which is bigint; cast it to STRING or BINARY",
        ),
        (yielded(k="string"), {"key": "k"}, "no column is left for the value"),
        (
            yielded(v="string", id="bigint"),
            {"value": "v"},
            "column id is neither key nor value nor header; leave it out",
        ),
        (yielded(d="interval day to second"), {}, "column d is interval day to second, which has no form in JSON"),
        (yielded(a="array<void>"), {}, "column a is array<void>, which has no form in JSON"),
        (yielded(id="int"), {"headers": [{"name": "h", "column": "x"}]}, r"sink.kafka.headers .h. names column x"),
        ([YieldedColumn("id", "int"), YieldedColumn("id", "int")], {}, "the query yields column id twice"),
    ],
)
def test_columns_that_make_no_record_are_named_with_what_to_do(
    columns: list[YieldedColumn], changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecordUnfit, match=words):
        fit_record(columns, sink(**changed))


def test_the_example_is_valid_and_its_columns_fit() -> None:
    (stream,) = read_streams(Path(__file__).parents[2] / "examples" / "orders-into-kafka.yaml")
    written = stream.spec.sink.spec
    assert isinstance(written, KafkaSink)
    columns = yielded(customer_key="string", id="bigint", customer="string", amount="decimal(12,2)", ts="timestamp")
    assert [column.name for column in fit_record(columns, written)] == ["key", "value"]


@pytest.mark.parametrize(
    ("selection", "is_read"),
    [
        ({"topics": ["rows"]}, True),
        ({"topics": ["orders"]}, False),
        ({"topicPattern": "r.*"}, True),
        ({"topicPattern": "r"}, False),
        ({"assign": [{"topic": "rows", "partitions": [2]}]}, True),
    ],
)
def test_a_topic_of_the_same_cluster_that_the_stream_selects_is_refused(
    selection: dict[str, Any], is_read: bool
) -> None:
    source = KafkaSource.model_validate({"bootstrapServers": "another-name:9092", **selection})
    require_not_read(source, sink(), "cluster-2", TOPIC)  # a topic of that name in another cluster is another topic
    if is_read:
        with pytest.raises(KafkaRefuses, match="each row would be read as a record again"):
            require_not_read(source, sink(), "cluster-1", TOPIC)
    else:
        require_not_read(source, sink(), "cluster-1", TOPIC)


def test_a_topic_that_takes_no_such_record_is_refused_by_its_setting() -> None:
    compacted = Topic("c", 1, 3, 1_000_000, 2, is_compacted=True)
    require_topic(sink(key="k"), compacted)
    with pytest.raises(KafkaRefuses, match="takes no record without a key"):
        require_topic(sink(), compacted)
    with pytest.raises(KafkaRefuses, match=r"asks for 2 replicas in sync .min\.insync\.replicas. and has 1"):
        require_topic(sink(), Topic("c", 1, 1, 1_000_000, 2, is_compacted=False))
