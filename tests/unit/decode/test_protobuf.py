"""Protobuf: messages that Google's library writes come back value for value; odd bytes have one answer, that library's."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2, wrappers_pb2
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactlyonce.api.column_ddl import parse
from exactlyonce_spark.decode.protobuf_format import ProtobufDecoder
from exactlyonce_spark.decode.protobuf_schema import ProtobufSchema, ProtobufSchemaUnusable
from exactlyonce_spark.decode.rules import Rules, TimestampUnit
from tests.unit.decode.answers import both_ways, shown

SETTINGS = settings(
    max_examples=int(os.environ.get("EXAMPLES", "15")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
Field = descriptor_pb2.FieldDescriptorProto
KINDS = {
    "int32": Field.TYPE_INT32,
    "int64": Field.TYPE_INT64,
    "uint64": Field.TYPE_UINT64,
    "sint32": Field.TYPE_SINT32,
    "double": Field.TYPE_DOUBLE,
    "float": Field.TYPE_FLOAT,
    "bool": Field.TYPE_BOOL,
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
}


def add(
    message: Any, name: str, kind: str, *, repeated: bool = False, optional: bool = False, choice: int | None = None
) -> None:
    field = message.field.add(
        name=name, number=len(message.field) + 1, label=Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    )
    if kind in KINDS:
        field.type = KINDS[kind]
    else:
        field.type = Field.TYPE_ENUM if kind == ".shop.Kind" else Field.TYPE_MESSAGE
        field.type_name = kind
    if optional:
        field.proto3_optional = True
        message.oneof_decl.add(name=f"_{name}")
        choice = len(message.oneof_decl) - 1
    if choice is not None:
        field.oneof_index = choice


def described() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="OLD", number=7)
    place = file.message_type.add(name="Place")
    add(place, "x", "int32")
    add(place, "y", "string", optional=True)
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="pay")
    add(order, "id", "int64")
    add(order, "cash", "int32", choice=0)
    add(order, "card", "string", choice=0)
    add(order, "small", "sint32", optional=True)
    add(order, "large", "uint64")
    add(order, "text", "string")
    add(order, "f", "float")
    add(order, "d", "double", optional=True)
    add(order, "b", "bool")
    add(order, "raw", "bytes")
    add(order, "kind", ".shop.Kind")
    add(order, "at", ".google.protobuf.Timestamp")
    add(order, "wrapped", ".google.protobuf.Int64Value")
    add(order, "tags", "string", repeated=True)
    add(order, "place", ".shop.Place")
    add(order, "places", ".shop.Place", repeated=True)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add(entry, "key", "string")
    add(entry, "value", "int64")
    add(order, "counts", ".shop.Order.CountsEntry", repeated=True)
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.add().CopyFrom(file)
    return bytes(files.SerializeToString())


FILES = described()
POOL = descriptor_pool.DescriptorPool()
for each in descriptor_pb2.FileDescriptorSet.FromString(FILES).file:
    POOL.Add(each)
Order: Any = GetMessageClass(POOL.FindMessageTypeByName("shop.Order"))
SCHEMA = ProtobufSchema(FILES, "shop.Order")
COLUMNS = parse(
    "id BIGINT, cash INT, card STRING, small TINYINT, large DECIMAL(19,0), text VARCHAR(8), f FLOAT, d "
    "DOUBLE, b BOOLEAN, raw BINARY, kind STRING, "
    "at TIMESTAMP, wrapped BIGINT, tags ARRAY<STRING>, place STRUCT<x: INT, y: STRING>, places "
    "ARRAY<STRUCT<y: STRING, x: BIGINT>>, "
    "counts MAP<STRING, BIGINT>, nowhere INT"
)

places = st.fixed_dictionaries({"x": st.integers(-(2**31), 2**31 - 1)}, optional={"y": st.text(max_size=5)})
orders = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "large": st.integers(0, 2**64 - 1),
        "text": st.text(max_size=9),
        "f": st.floats(width=32, allow_nan=False),
    },
    optional={
        "pay": st.one_of(
            st.tuples(st.just("cash"), st.integers(-5, 5)), st.tuples(st.just("card"), st.text(max_size=3))
        ),
        "small": st.integers(-200, 200),
        "d": st.floats(),
        "b": st.booleans(),
        "raw": st.binary(max_size=9),
        "kind": st.sampled_from([0, 7, 7, 9]),
        "at": st.tuples(
            st.integers(-62135596800, 253402300799),
            st.integers(0, 999999).map(lambda it: it * 1000) | st.integers(0, 999999999),
        ),
        "wrapped": st.integers(-(2**63), 2**63 - 1),
        "tags": st.lists(st.text(max_size=3), max_size=3),
        "place": places,
        "places": st.lists(places, max_size=3),
        "counts": st.dictionaries(st.text(max_size=2), st.integers(-9, 9), max_size=3),
    },
)


def message(order: dict[str, Any]) -> Any:
    fields = {**order}
    if "pay" in fields:
        name, value = fields.pop("pay")
        fields[name] = value
    if "at" in fields:
        fields["at"] = dict(zip(("seconds", "nanos"), fields["at"], strict=True))
    if "wrapped" in fields:
        fields["wrapped"] = {"value": fields["wrapped"]}
    return Order(**fields)


def expected(order: dict[str, Any]) -> dict[str, Any] | None:
    """The row of an order; None if it is malformed."""
    row: dict[str, Any] = {column.name: order.get(column.name) for column in COLUMNS}
    if "pay" in order:
        row[order["pay"][0]] = order["pay"][1]
    row |= {"b": order.get("b", False), "raw": order.get("raw", b""), "tags": order.get("tags", [])}
    row |= {
        "large": Decimal(order["large"]),
        "counts": sorted(order.get("counts", {}).items()),
        "kind": {0: "NEW", 7: "OLD"}.get(order.get("kind", 0)),
    }
    if "place" in order:
        row["place"] = {"x": order["place"]["x"], "y": order["place"].get("y")}
    row["places"] = [{"y": it.get("y"), "x": it["x"]} for it in order.get("places", [])]
    seconds, nanos = order.get("at", (0, 0))
    if "at" in order:
        row["at"] = datetime.fromordinal(719163 + seconds // 86400).replace(tzinfo=UTC)
        row["at"] = row["at"].replace(
            hour=seconds % 86400 // 3600, minute=seconds % 3600 // 60, second=seconds % 60, microsecond=nanos // 1000
        )
    fits = (
        -128 <= order.get("small", 0) <= 127
        and order["large"] < 10**19
        and len(order["text"]) <= 8
        and abs(order["f"]) < float("inf")
        and abs(order.get("d", 0.0)) < float("inf")
        and row["kind"] is not None
        and nanos % 1000 == 0
    )
    return row if fits else None


@SETTINGS
@given(st.lists(orders, min_size=1, max_size=20))
def test_messages_come_back_value_for_value(given_orders: list[dict[str, Any]]) -> None:
    decoder = ProtobufDecoder(COLUMNS, Rules(), SCHEMA)
    found = both_ways(decoder, [message(order).SerializeToString(deterministic=True) for order in given_orders])
    for order, row in zip(given_orders, found, strict=True):
        wanted = expected(order)
        if wanted is None:
            assert isinstance(row, str)
            assert row.startswith("column ")
        else:
            assert shown(row) == shown(wanted)


@SETTINGS
@given(st.data())
def test_bytes_that_are_cut_joined_or_changed_give_the_same_answer_both_ways(data: st.DataObject) -> None:
    values = []
    for order in data.draw(st.lists(orders, min_size=2, max_size=10)):
        value = bytearray(message(order).SerializeToString() + message(data.draw(orders)).SerializeToString())
        for _ in range(data.draw(st.integers(0, 2)) if value else 0):
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(
                st.sampled_from([0, 1, 2, 8, 0x0A, 0x7F, 0x80, 0xFF])
            )
        values.append(bytes(value[: data.draw(st.integers(0, 2 * len(value)))]))
    both_ways(ProtobufDecoder(COLUMNS, Rules(), SCHEMA), values)


def test_what_protobuf_says_of_odd_messages_is_what_lands() -> None:
    decoder = ProtobufDecoder(
        parse("id BIGINT, cash INT, card STRING, counts MAP<STRING, BIGINT>, place STRUCT<x: INT, y: STRING>"),
        Rules(),
        SCHEMA,
    )
    absent: dict[str, Any] = {"id": 0, "cash": None, "card": None, "counts": [], "place": None}
    two = message({"pay": ("cash", 1)}).SerializeToString() + message({"pay": ("card", "x")}).SerializeToString()
    again = Order(counts={"k": 1}).SerializeToString() + Order(counts={"k": 2}).SerializeToString()
    merged = Order(place={"x": 5}).SerializeToString() + Order(place={"y": "q"}).SerializeToString()
    assert both_ways(decoder, [b"", two, again, merged, None]) == [
        absent,
        {**absent, "card": "x"},
        {**absent, "counts": [("k", 2)]},
        {**absent, "place": {"x": 5, "y": "q"}},
        "tombstone",
    ]
    assert "not a message shop.Order" in both_ways(decoder, [b"\x0a\x05hell"])[0]


def test_numbers_count_what_the_resource_says() -> None:
    decoder = ProtobufDecoder(
        parse("id TIMESTAMP, large TIMESTAMP"), Rules(timestamp_unit=TimestampUnit.MILLISECONDS), SCHEMA
    )
    moment = datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    assert both_ways(decoder, [Order(id=1, large=1).SerializeToString()]) == [{"id": moment, "large": moment}]
    assert (
        "set format.timestampUnit"
        in both_ways(ProtobufDecoder(parse("id TIMESTAMP"), Rules(), SCHEMA), [Order(id=1).SerializeToString()])[0]
    )


@pytest.mark.parametrize(
    ("schema", "columns", "reason"),
    [
        (ProtobufSchema(b"\xff", "shop.Order"), "id INT", "descriptors are unusable"),
        (ProtobufSchema(FILES, "shop.Nothing"), "id INT", "no message shop.Nothing"),
        (SCHEMA, "text INT", "column text is INT, and field shop.Order.text is another type"),
        (SCHEMA, "tags STRING", "column tags is STRING, and field shop.Order.tags is a repeated field"),
        (SCHEMA, "place STRUCT<z: INT NOT NULL>", "column place.z is NOT NULL, and shop.Place has no such field"),
        (SCHEMA, "counts MAP<INT, INT>", "column counts, key is INT"),
    ],
)
def test_descriptors_that_cannot_become_the_columns_are_refused(
    schema: ProtobufSchema, columns: str, reason: str
) -> None:
    with pytest.raises(ProtobufSchemaUnusable, match=reason):
        ProtobufDecoder(parse(columns), Rules(), schema)
