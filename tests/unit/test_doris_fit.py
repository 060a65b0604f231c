"""What fits a table of Doris, as its schema tells it, and the lines that rows become."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from exactlyonce.connectors.doris.answers import Unreadable
from exactlyonce.connectors.doris.columns import columns_of
from exactlyonce.connectors.doris.spec import Write
from exactlyonce.connectors.doris.table import DorisColumn, DorisTable, KeysModel, table_of
from exactlyonce_spark.connectors.doris.fit import DorisFit, TableUnfit, fit_columns
from exactlyonce_spark.connectors.doris.rows import PIECE_BYTES, json_lines
from exactlyonce_spark.connectors.ports import YieldedColumn
from exactlyonce_spark.sql_text import as_json

TYPES = (
    "TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT", "FLOAT", "DOUBLE", "BOOLEAN", "CHAR", "VARCHAR", "STRING",
    "DATE", "DATEV2", "DATETIME", "DATETIMEV2", "JSON", "JSONB", "VARIANT", "ARRAY", "MAP", "STRUCT", "IPV4", "IPV6",
    "BITMAP", "HLL",
)  # fmt: skip
WHOLE = {"TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT"}
TEXTS = {"CHAR", "VARCHAR", "STRING"}
DOCUMENTS = {"JSON", "JSONB", "VARIANT"}
TIMES = {"DATETIME", "DATETIMEV2"}
DATES = {"DATE", "DATEV2"}


def table(*columns: DorisColumn, model: KeysModel = KeysModel.DUPLICATE) -> DorisTable:
    return DorisTable(model, columns)


def fits(spark: str, kind: str, precision: int = 0, scale: int = 0) -> bool:
    try:
        fit_columns(
            [YieldedColumn("c", spark)], table(DorisColumn("c", kind, precision, scale)), "shop.t", Write.APPEND
        )
    except TableUnfit:
        return False
    return True


@pytest.mark.parametrize(
    ("spark", "kinds"),
    [
        ("tinyint", WHOLE),
        ("int", WHOLE),
        ("bigint", WHOLE),
        ("decimal(20,0)", WHOLE),
        ("decimal(20,2)", set()),
        ("float", {"FLOAT", "DOUBLE"}),
        ("double", {"DOUBLE"}),
        ("boolean", {"BOOLEAN"}),
        ("string", TEXTS | DOCUMENTS | TIMES | DATES | {"IPV4", "IPV6"}),
        ("date", DATES | TIMES),
        ("timestamp", TIMES),
        ("timestamp_ntz", TIMES),
        ("binary", set()),
        ("interval day", set()),
        ("array<int>", TEXTS | DOCUMENTS),
        ("map<string,int>", TEXTS | DOCUMENTS),
        ("struct<a:int>", TEXTS | DOCUMENTS),
    ],
)
def test_a_type_fits_those_that_keep_each_of_its_values_or_refuse_it(spark: str, kinds: set[str]) -> None:
    assert {kind for kind in TYPES if fits(spark, kind)} == kinds


@pytest.mark.parametrize(
    ("spark", "precision", "scale", "fit"),
    [
        ("decimal(10,2)", 10, 2, True),
        ("decimal(10,2)", 12, 4, True),
        ("decimal(10,2)", 9, 2, True),
        ("decimal(10,2)", 38, 1, False),
        ("decimal(38,38)", 38, 0, False),
        ("bigint", 5, 0, True),
        ("double", 38, 10, False),
        ("string", 38, 10, False),
    ],
)
def test_a_decimal_must_keep_every_digit_behind_the_point(spark: str, precision: int, scale: int, fit: bool) -> None:
    assert fits(spark, "DECIMAL64", precision=precision, scale=scale) is fit


def expression(spark: str, kind: str) -> DorisFit:
    return fit_columns([YieldedColumn("c`d", spark)], table(DorisColumn("c`d", kind)), "t", Write.APPEND)[0]


def test_a_name_with_the_mark_that_quotes_names_is_refused() -> None:
    with pytest.raises(TableUnfit, match="cannot be told to Doris"):
        expression("int", "INT")


def test_columns_may_stand_in_any_order_and_some_may_be_missing_where_rows_are_appended() -> None:
    there = table(DorisColumn("Id", "BIGINT"), DorisColumn("note", "STRING"), DorisColumn("at", "DATETIMEV2"))
    fitted = fit_columns([YieldedColumn("NOTE", "string"), YieldedColumn("id", "int")], there, "t", Write.APPEND)
    assert fitted == (DorisFit("note", "`NOTE`"), DorisFit("Id", "cast(`id` as string)", is_plain=True))


@pytest.mark.parametrize(("write", "model"), [(Write.UPSERT, KeysModel.UNIQUE), (Write.AGGREGATE, KeysModel.AGGREGATE)])
def test_a_row_that_replaces_another_must_name_every_column(write: Write, model: KeysModel) -> None:
    there = table(DorisColumn("id", "BIGINT"), DorisColumn("note", "STRING"), model=model)
    with pytest.raises(
        TableUnfit, match=f"does not yield the table's column note, whose values write: {write} would lose"
    ):
        fit_columns([YieldedColumn("id", "int")], there, "t", write)


@pytest.mark.parametrize("write", list(Write))
@pytest.mark.parametrize("model", list(KeysModel))
def test_a_model_fits_one_way_of_writing(write: Write, model: KeysModel) -> None:
    own = {Write.APPEND: KeysModel.DUPLICATE, Write.UPSERT: KeysModel.UNIQUE, Write.AGGREGATE: KeysModel.AGGREGATE}[
        write
    ]
    there = table(DorisColumn("id", "BIGINT"), model=model)
    if model is own:
        fit_columns([YieldedColumn("id", "int")], there, "t", write)
    else:
        with pytest.raises(TableUnfit, match=f"its model is {model.value}"):
            fit_columns([YieldedColumn("id", "int")], there, "t", write)


def test_everything_that_does_not_fit_is_named_at_once() -> None:
    yielded = [
        YieldedColumn("id", "int"),
        YieldedColumn("ID", "int"),
        YieldedColumn("other", "int"),
        YieldedColumn("note", "binary"),
    ]
    with pytest.raises(TableUnfit) as told:
        fit_columns(yielded, table(DorisColumn("id", "INT"), DorisColumn("note", "STRING")), "shop.t", Write.APPEND)
    for part in ("shop.t", "yields column id twice", "no column other (it has id, note)", "column note is binary"):
        assert part in str(told.value)


def test_a_time_with_a_fraction_is_refused_where_it_is_handed_over() -> None:
    one = fit_columns([YieldedColumn("at", "timestamp")], table(DorisColumn("at", "DATETIMEV2")), "t", Write.APPEND)[0]
    assert "raise_error" in one.expression
    assert " <=> " in one.expression, "a NULL is no fraction"
    assert "cast(cast(`at` as timestamp_ntz) as string)" in one.expression


def test_a_name_with_a_quote_stays_inside_of_the_text_that_names_it() -> None:
    yielded, there = [YieldedColumn("o'clock\\", "timestamp")], table(DorisColumn("o'clock\\", "DATETIME"))
    one = fit_columns(yielded, there, "t", Write.APPEND)[0]
    assert "raise_error('column o\\'clock\\\\ has a fraction" in one.expression


def test_nested_values_become_json_in_the_row_where_the_column_holds_json() -> None:
    there = table(DorisColumn("a", "VARIANT"), DorisColumn("b", "STRING"))
    fitted = fit_columns([YieldedColumn("a", "array<int>"), YieldedColumn("b", "array<int>")], there, "t", Write.APPEND)
    assert fitted == (DorisFit("a", as_json("`a`"), is_document=True), DorisFit("b", as_json("`b`")))


ROW: dict[str, Any] = {
    "date": "0001-01-01",
    "time": "1883-11-18 12:03:58",
    "decimal": str(Decimal("-99999999999999999999999999999999999.999")),
    "text": 'é "quoted" \\ \n\r\t 🙂 \u2028',
    "nothing": None,
    "document": '{"a": [1,\n 12345678901234567890.123456789012345678], "b": "\\n"}',
}


def test_each_row_is_one_line_and_each_value_what_it_was() -> None:
    body = b"".join(json_lines([tuple(ROW.values())] * 2, tuple(ROW), {"document"}))
    parsed = [json.loads(line, parse_float=str) for line in body.decode().removesuffix("\n").split("\n")]
    document = {"a": [1, "12345678901234567890.123456789012345678"], "b": "\n"}
    assert parsed == [{**ROW, "document": document}] * 2


def test_a_document_that_is_no_json_becomes_no_row() -> None:
    for text in ('1}\n{"id": 2', "", "{"):
        with pytest.raises(json.JSONDecodeError):
            list(json_lines([(text,)], ("document",), {"document"}))


def test_lines_come_in_pieces_that_fit_memory() -> None:
    pieces = list(json_lines((("x" * 1000,) for _ in range(5000)), ("id",), ()))
    assert sum(piece.count(b"\n") for piece in pieces) == 5000
    assert max(map(len, pieces)) < PIECE_BYTES + 2000


def told(*entries: str, query: str, table_columns: str, write: Write = Write.APPEND) -> tuple[DorisFit, ...]:
    """Fit a query's columns of numbers to a table's, where the stream names columns."""
    model = {Write.APPEND: KeysModel.DUPLICATE, Write.UPSERT: KeysModel.UNIQUE}[write]
    there = table(
        *(DorisColumn(name, "HLL" if name == "users" else "BIGINT") for name in table_columns.split()), model=model
    )
    return fit_columns([YieldedColumn(name, "int") for name in query.split()], there, "t", write, columns_of(entries))


def test_a_column_that_only_an_expression_reads_is_sent_as_text_under_its_own_name() -> None:
    fitted = told("id", "user", "users=hll_hash(user)", query="user id", table_columns="id users")
    assert fitted == (
        DorisFit("user", "cast(`user` as string)", is_plain=True),
        DorisFit("id", "cast(`id` as string)", is_plain=True),
    )


@pytest.mark.parametrize(
    "spark", ["string", "char(3)", "varchar(3)", "binary", "variant", "interval day", "array<int>", "struct<a:string>"]
)
def test_a_text_that_may_have_a_character_to_be_escaped_is_looked_at_for_one(spark: str) -> None:
    """Otherwise a quote in a record would end its value, and what follows would be other columns."""
    there = table(DorisColumn("c", "STRING"), DorisColumn("users", "HLL"))
    name = "c" if fits(spark, "STRING") else "read"
    entries = () if name == "c" else ("read", "users=hll_hash(read)")
    (fitted,) = fit_columns([YieldedColumn(name, spark)], there, "t", Write.APPEND, columns_of(entries))
    assert not fitted.is_plain


def test_a_computed_column_is_one_that_a_row_names() -> None:
    assert told("id", "n", "total=n+1", query="id n", table_columns="id total", write=Write.UPSERT)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (("id", "n"), "the table has no column n"),
        (("id", "n", "total=nn+1"), "the table has no column n"),
        (("id", "total=n+1"), "columns leaves out n, which the query yields"),
        (("id", "n", "m", "total=n+1"), "columns names m, which the query does not yield"),
        (("id", "n", "sum=n+1"), "columns computes sum, which the table does not have"),
        (("id", "n", "total=n", "TOTAL=n+1"), "columns names total twice"),
        (("id", "n", "ID=n+1"), "columns names id twice"),
    ],
)
def test_columns_that_fit_neither_the_query_nor_the_table_are_named(entries: tuple[str, ...], problem: str) -> None:
    with pytest.raises(TableUnfit, match=problem):
        told(*entries, query="id n", table_columns="id total")


SCHEMA = {
    "status": 200,
    "keysType": "UNIQUE_KEYS",
    "properties": [
        {"name": "id", "type": "BIGINT", "comment": "", "aggregation_type": ""},
        {
            "name": "größe",
            "type": "decimal64",
            "precision": "18",
            "scale": "4",
            "comment": "",
            "aggregation_type": "REPLACE",
        },
    ],
}


def test_a_schema_is_read() -> None:
    columns = (DorisColumn("id", "BIGINT"), DorisColumn("größe", "DECIMAL64", 18, 4, "REPLACE"))
    assert table_of(SCHEMA) == DorisTable(KeysModel.UNIQUE, columns)
    assert table_of(SCHEMA).column("GRÖSSE") is None
    assert table_of(SCHEMA).column("ID") == columns[0]


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {**SCHEMA, "keysType": ""},
        {**SCHEMA, "properties": []},
        {**SCHEMA, "properties": [7]},
        {**SCHEMA, "properties": [{"name": "a\r\nX-Header: b", "type": "INT"}]},
        {**SCHEMA, "properties": [{"name": "a", "type": None}]},
        {**SCHEMA, "properties": [{"name": "a", "type": "DECIMAL32", "scale": "-1"}]},
        {**SCHEMA, "properties": [{"name": "a", "type": "INT", "aggregation_type": 3}]},
        {**SCHEMA, "properties": [{"name": "a", "type": "INT"}] * 5000},
    ],
)
def test_what_is_no_schema_of_a_table_is_not_read(data: Any) -> None:
    with pytest.raises(Unreadable):
        table_of(data)
