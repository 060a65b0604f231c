"""What a format can hold, and which rows fit the files that have landed."""

from __future__ import annotations

import pytest

from exactlyonce.connectors.files.columns import (
    ColumnsUnfit,
    Type,
    digest,
    from_json,
    require_columns,
    require_fit,
    require_positions,
    to_json,
)
from exactlyonce.connectors.files.spec import FileFormat
from exactlyonce_spark.connectors.files.failures import FAILURES

LIST: Type = {"type": "array", "elementType": "long", "containsNull": True}
STRUCT: Type = {
    "type": "struct",
    "fields": [{"name": "a", "type": {"type": "map", "keyType": "string", "valueType": "void"}}],
}


@pytest.mark.parametrize(
    ("given", "type_", "kind"),
    [
        (FileFormat.CSV, LIST, "array"),
        (FileFormat.CSV, "binary", "binary"),
        (FileFormat.PARQUET, "void", "void"),
        (FileFormat.PARQUET, STRUCT, "void"),
        (FileFormat.ORC, "interval day to second", "interval"),
        (FileFormat.JSON, "variant", "variant"),
    ],
)
def test_a_type_that_the_format_cannot_hold_is_named_with_its_column(given: FileFormat, type_: Type, kind: str) -> None:
    with pytest.raises(
        ColumnsUnfit, match=f"The type of column extra is or contains {kind}, which {given} files cannot hold"
    ):
        require_columns({"id": "long", "extra": type_}, given, ())


def test_a_map_without_texts_for_keys_is_refused_for_json_whose_readers_in_spark_fail_on_it() -> None:
    numbered: Type = {"type": "map", "keyType": "integer", "valueType": "string", "valueContainsNull": True}
    named: Type = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
    within: Type = {"type": "array", "elementType": numbered, "containsNull": True}
    for type_ in (numbered, within):
        with pytest.raises(ColumnsUnfit, match="column extra is or contains a map whose keys are not texts"):
            require_columns({"id": "long", "extra": type_}, FileFormat.JSON, ())
        require_columns({"id": "long", "extra": type_}, FileFormat.PARQUET, ())
    require_columns({"id": "long", "extra": named}, FileFormat.JSON, ())


def test_every_format_holds_simple_columns_and_all_but_csv_hold_nested_ones() -> None:
    for given in FileFormat:
        require_columns({"id": "long", "name": "string", "price": "decimal(10,2)", "at": "timestamp"}, given, ("name",))
    for given in (FileFormat.PARQUET, FileFormat.JSON, FileFormat.ORC):
        require_columns({"id": "long", "list": LIST}, given, ())


@pytest.mark.parametrize(
    ("columns", "partition_by", "words"),
    [
        ({"id": "long"}, ("day",), "partitionBy names day, which the query does not yield; it yields id"),
        ({"id": "long"}, ("id",), "names every column"),
        ({"id": "long", "list": LIST}, ("list",), "whose values cannot be the name of a folder"),
        ({"id": "long", "ID": "long"}, (), "yields id more than once"),
    ],
)
def test_columns_that_cannot_be_laid_out_are_refused(
    columns: dict[str, Type], partition_by: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ColumnsUnfit, match=words):
        require_columns(columns, FileFormat.PARQUET, partition_by)


LANDED: dict[str, Type] = {"id": "long", "name": "string"}


@pytest.mark.parametrize("given", list(FileFormat))
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": "string", "name": "string"}, "id was long and is string"),
        ({"id": "long"}, "name is gone"),
        ({"id": "long", "name": LIST}, "name was string and is another kind of array"),
    ],
)
def test_rows_that_readers_could_not_read_with_the_files_that_landed_are_refused(
    given: FileFormat, columns: dict[str, Type], words: str
) -> None:
    with pytest.raises(ColumnsUnfit, match=rf"do not fit the {given} files that have landed in /out: {words}"):
        require_fit(LANDED, columns, given, "/out")


def test_a_column_may_be_added_or_moved_where_the_format_knows_columns_by_name() -> None:
    moved_and_more: dict[str, Type] = {"name": "string", "more": "long", "id": "long"}
    for given in (FileFormat.PARQUET, FileFormat.JSON, FileFormat.ORC):
        require_fit(LANDED, moved_and_more, given, "/out")
    with pytest.raises(ColumnsUnfit, match="more is new"):
        require_fit(LANDED, moved_and_more, FileFormat.CSV, "/out")
    with pytest.raises(ColumnsUnfit, match="the order was id, name and is name, id"):
        require_fit(LANDED, {"name": "string", "id": "long"}, FileFormat.CSV, "/out")


def test_columns_are_kept_under_a_name_of_their_content() -> None:
    for columns in (LANDED, {"b": "long", "a": LIST}):
        found = from_json(to_json(columns).encode(), digest(columns))
        assert found is not None
        assert list(found.items()) == list(columns.items()), "in their order"
    assert from_json(to_json(LANDED).encode(), digest({"b": "long"})) is None
    assert digest(LANDED) == digest(dict(LANDED)) != digest({"name": "string", "id": "long"})


def test_a_folder_that_takes_no_files_is_recognised_in_what_spark_tells() -> None:
    told = "Job aborted.\nCaused by: java.io.IOException: No space left on device\n\tat java.base/x"
    assert FAILURES.outage(told) == (
        "No file can be written to the sink's folder (No space left on device); nothing was landed by this. Make the "
        "folder writable, or free space on it."
    )
    assert FAILURES.outage("java.io.IOException: Broken pipe") is None


OF_A_SHARD = {"origin": "_stream", "partition": "_shard", "position": "_sequence"}


def test_positions_of_any_source_are_taken_in_types_that_a_files_statistics_order() -> None:
    for partition, position in (("integer", "long"), ("string", "decimal(38,0)")):
        columns: dict[str, Type] = {"_stream": "string", "_shard": partition, "_sequence": position, "id": "long"}
        require_positions(columns, OF_A_SHARD)
    require_positions({"_shard": "string", "_sequence": "long"}, {"partition": "_shard", "position": "_sequence"})
    require_positions({"_shard": "string", "_position": "string"}, {"partition": "_shard", "positionText": "_position"})
    with pytest.raises(ColumnsUnfit, match="the transform changes its type to long"):
        require_positions(
            {"_shard": "string", "_position": "long"}, {"partition": "_shard", "positionText": "_position"}
        )


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"_stream": "string", "id": "long"},
            "needs _shard, _sequence, which the transform does not yield; select _stream",
        ),
        ({"_stream": "string", "_shard": "string", "_sequence": "string"}, "the transform changes its type to string"),
        (
            {"_stream": "string", "_shard": "string", "_sequence": "decimal(38,2)"},
            r"needs the source\'s own _sequence, .* to decimal\(38,2\)",
        ),
        (
            {"_stream": "string", "_shard": LIST, "_sequence": "long"},
            "needs the source's own _shard, .* to another kind of array",
        ),
    ],
)
def test_positions_that_a_files_statistics_would_not_order_are_refused(columns: dict[str, Type], words: str) -> None:
    with pytest.raises(ColumnsUnfit, match=f"sink.files.includePositions .*{words}"):
        require_positions(columns, OF_A_SHARD)
