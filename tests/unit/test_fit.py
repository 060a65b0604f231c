"""Does what the query yields fit the table? Every pair of types, then names, keys and the sentence that says what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.connectors.postgres.spec import Combine, MergedColumn, PostgresSink, Write
from exactlyonce.schema.model import SecretRef
from exactlyonce_spark.connectors.ports import FittedColumn, YieldedColumn
from exactlyonce_spark.connectors.postgres.fit import fit_columns
from exactlyonce_spark.connectors.postgres.table import Table, TableColumn, TargetUnfit
from exactlyonce_spark.sql_text import as_json

CATEGORIES = {
    "smallint": "int2", "integer": "int4", "bigint": "int8",
    "numeric": "numeric", "numeric(12,2)": "numeric", "numeric(5,0)": "numeric", "numeric(5,-2)": "numeric",
    "real": "float4", "double precision": "float8", "boolean": "B",
    "text": "S", "character varying(3)": "S", "character(3)": "S", "name": "S", '"char"': "Z",
    "uuid": "U", "mood": "E", "inet": "I", "int4range": "R", "bit(3)": "V", "point": "G",
    "json": "json", "jsonb": "json", "bytea": "bytea", "money": "N", "interval": "T",
    "date": "date", "time without time zone": "time", "time with time zone": "timetz",
    "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz",
    "timestamp(6) without time zone": "timestamp", "timestamp(6) with time zone": "timestamptz",
    "timestamp(3) without time zone": "timestamp", "timestamp(0) with time zone": "timestamptz",
    "smallint[]": "A", "integer[]": "A", "bigint[]": "A", "numeric[]": "A", "numeric(5,2)[]": "A", "real[]": "A",
    "double precision[]": "A", "boolean[]": "A", "date[]": "A", "text[]": "A", "character varying(3)[]": "A", "name[]": "A",
    "uuid[]": "A", "jsonb[]": "A",
}  # fmt: skip
"""What the catalog says of each type: see TableColumn."""
ELEMENTS = {"text[]": "S", "character varying(3)[]": "S", "name[]": "S", "uuid[]": "U", "boolean[]": "B", "date[]": "D"}

WHOLE = {"smallint", "integer", "bigint", "numeric", "numeric(12,2)", "numeric(5,0)"}
WHOLE_ARRAYS = {"smallint[]", "integer[]", "bigint[]", "numeric[]"}
TEXTS = {"text", "character varying(3)", "character(3)", "uuid", "mood", "inet", "int4range", "bit(3)", "point"}
JSONS = {"json", "jsonb"}
LOCAL = {"timestamp without time zone", "timestamp(6) without time zone"}
MOMENTS = {"timestamp with time zone", "timestamp(6) with time zone"}
ROUNDED = {"timestamp(3) without time zone"}

FITS = {
    "tinyint": WHOLE | {"double precision"},
    "smallint": WHOLE | {"double precision"},
    "int": WHOLE | {"double precision"},
    "bigint": WHOLE,  # a double holds 53 bits of it
    "decimal(10,0)": WHOLE,
    "decimal(12,2)": {"numeric", "numeric(12,2)"},
    "decimal(38,3)": {"numeric"},
    "float": {"real", "double precision"},
    "double": {"double precision"},
    "boolean": {"boolean"},
    "string": TEXTS | JSONS,
    "char(3)": TEXTS,
    "varchar(9)": TEXTS,
    "date": {"date"} | LOCAL | ROUNDED,  # midnight, whatever it is rounded to
    "timestamp": LOCAL | MOMENTS,
    "timestamp_ntz": LOCAL,  # without a zone it is not a timestamp
    "binary": {"bytea"},
    "array<tinyint>": WHOLE_ARRAYS | JSONS,
    "array<bigint>": WHOLE_ARRAYS | JSONS,
    "array<boolean>": {"boolean[]"} | JSONS,
    "array<double>": {"double precision[]"} | JSONS,
    "array<float>": JSONS,
    "array<date>": {"date[]"} | JSONS,
    "array<string>": {"text[]", "character varying(3)[]"} | JSONS,
    "array<timestamp>": JSONS,
    "array<array<int>>": JSONS,
    "map<string,int>": JSONS,
    "struct<a:int>": JSONS,
    "interval day to second": set(),
    "void": set(),
    "variant": set(),
}
"""For each type of the query, the types of a table that take all of its values as they are, or refuse one in words."""

APPEND = PostgresSink(secret_ref=SecretRef(name="warehouse"), table="public.orders")
UPSERT = APPEND.model_copy(update={"write": Write.UPSERT, "keys": ("id",)})
MERGE = APPEND.model_copy(
    update={"write": Write.MERGE, "keys": ("id",), "merge": (MergedColumn(column="total", combine=Combine.SUM),)}
)


def column(name: str, type_name: str = "bigint") -> TableColumn:
    """Return a column of a table that may be NULL and has no default."""
    return TableColumn(name, type_name, CATEGORIES[type_name], False, False, False, ELEMENTS.get(type_name))


def table(*columns: TableColumn, keys: tuple[frozenset[str], ...] = ()) -> Table:
    """Return a table."""
    return Table("public", "orders", columns, keys)


def problems(names: str, target: Table, sink: PostgresSink = APPEND) -> list[str]:
    """Return what is said against a query that yields these columns as bigint."""
    with pytest.raises(TargetUnfit) as unfit:
        fit_columns([YieldedColumn(name, "bigint") for name in names.split()], target, sink)
    beginning = "What the query yields does not fit the table public.orders: "
    assert str(unfit.value).startswith(beginning)
    assert str(unfit.value).endswith(".")
    return str(unfit.value)[:-1].removeprefix(beginning).split("; ")


@pytest.mark.parametrize("spark_type", FITS)
def test_a_pair_of_types_fits_when_no_value_can_change_silently(spark_type: str) -> None:
    taken, refused = set(), {}
    for type_name in CATEGORIES:
        try:
            fit_columns([YieldedColumn("a", spark_type)], table(column("a", type_name)), APPEND)
            taken.add(type_name)
        except TargetUnfit as problem:
            refused[type_name] = str(problem)
    assert taken == FITS[spark_type]
    for type_name, sentence in refused.items():
        assert sentence == (
            f"What the query yields does not fit the table public.orders: column a is {spark_type} in the query and "
            f"{type_name} in the table; cast it in the transform, or alter the column, to a type that keeps every value."
        )


@pytest.mark.parametrize(
    ("spark_type", "type_name", "expression"),
    [
        ("bigint", "bigint", "`a``b`"),
        ("string", "text", "`a``b`"),
        ("string", "jsonb", "`a``b`"),
        ("struct<a:int>", "jsonb", as_json("`a``b`")),
        ("array<int>", "jsonb", as_json("`a``b`")),
        ("float", "double precision", "cast(`a``b` as double)"),
        ("float", "real", "`a``b`"),
        ("binary", "bytea", r"concat('\\x', hex(`a``b`))"),
        ("timestamp", "timestamp with time zone", "cast(`a``b` as timestamp_ntz)"),
        ("timestamp_ntz", "timestamp without time zone", "`a``b`"),
    ],
)
def test_a_column_is_handed_over_by_an_expression_over_its_quoted_name(
    spark_type: str, type_name: str, expression: str
) -> None:
    fitted = fit_columns([YieldedColumn("a`b", spark_type)], table(column("a`b", type_name)), APPEND)
    assert fitted == (FittedColumn("a`b", expression),)


def test_an_array_is_handed_over_as_quoted_elements_with_null_kept_apart() -> None:
    (fitted,) = fit_columns([YieldedColumn("a", "array<string>")], table(column("a", "text[]")), APPEND)
    assert fitted.expression.startswith("if(`a` is null, null, concat('{', array_join(transform(`a`, x -> coalesce(")
    assert "'NULL'" in fitted.expression


def test_columns_are_written_in_the_querys_order_and_others_of_the_table_are_left_to_it() -> None:
    target = table(
        column("a"), column("b"), replace(column("made"), always_generated=True),
        replace(column("filled"), not_null=True, filled_by_itself=True),
    )  # fmt: skip
    fitted = fit_columns([YieldedColumn("b", "bigint"), YieldedColumn("a", "bigint")], target, APPEND)
    assert [each.name for each in fitted] == ["b", "a"]


NEEDED = table(column("a"), replace(column("id"), not_null=True))
KEYED = table(replace(column("id"), not_null=True), column("total"), keys=(frozenset({"id"}),))


@pytest.mark.parametrize(
    ("names", "target", "sink", "words"),
    [
        ("id b", NEEDED, APPEND, ["the table has no column b (it has a, id)"]),
        ("id ID", NEEDED, APPEND, ["the table has no column ID (it has a, id)"]),
        ("id a a", NEEDED, APPEND, ["the query yields column a twice"]),
        ("a", NEEDED, APPEND, ["the table's column id is NOT NULL without a default and the query does not yield it"]),
        ("a", table(replace(column("a"), always_generated=True)), APPEND,
         ["column a is generated by the table and cannot be written"]),
        ("b c", NEEDED, APPEND,
         ["the table has no column b (it has a, id)", "the table has no column c (it has a, id)",
          "the table's column id is NOT NULL without a default and the query does not yield it"]),
        ("id total", table(*KEYED.columns), UPSERT,
         ["the keys id have no unique index", "create one: create unique index on public.orders (id)"]),
        ("id total", replace(KEYED, unique_keys=(frozenset({"id", "total"}), frozenset({"total"}))), UPSERT,
         ["the keys id have no unique index", "create one: create unique index on public.orders (id)"]),
        ("id total", table(column("id"), column("total"), keys=(frozenset({"id"}),)), UPSERT,
         ["the key id may be NULL, which no unique index holds together", "make it NOT NULL"]),
        ("id", KEYED, UPSERT.model_copy(update={"version": "total"}),
         ["the query does not yield total, which sink.postgres names"]),
        ("id", KEYED, MERGE, ["the query does not yield total, which sink.postgres names"]),
        ("id total", KEYED, MERGE.model_copy(update={"merge": ()}),
         ["sink.postgres.merge does not say how to combine total"]),
        ("total", replace(KEYED, columns=(column("total"),)), UPSERT,
         ["the query does not yield id, which sink.postgres names"]),
    ],
)  # fmt: skip
def test_everything_that_does_not_fit_is_named_with_what_to_do(
    names: str, target: Table, sink: PostgresSink, words: list[str]
) -> None:
    assert problems(names, target, sink) == words


@pytest.mark.parametrize("sink", [UPSERT, UPSERT.model_copy(update={"version": "total"}), MERGE])
def test_keys_with_a_unique_index_fit(sink: PostgresSink) -> None:
    columns = [YieldedColumn("id", "bigint"), YieldedColumn("total", "int")]
    assert [each.name for each in fit_columns(columns, KEYED, sink)] == ["id", "total"]
