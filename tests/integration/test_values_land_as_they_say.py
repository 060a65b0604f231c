"""A value lands as its record says, or its record is a dead letter that names column and value; none becomes another one.

The records are those that Spark's own parsers changed in silence, or lost.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from exactlyonce.reconcile.loop import Done, Halted
from tests.rig import Rig

SCHEMA = (
    "id BIGINT NOT NULL, b TINYINT, a DECIMAL(12,2), d DOUBLE, f FLOAT, v STRING, doc STRING, ts TIMESTAMP, "
    "o STRUCT<x: INT NOT NULL, at: TIMESTAMP, n: INT>, day DATE"
)
TABLE = (
    "create table odd (id bigint, b smallint, a numeric, d float8, f float4, v text, doc jsonb, ts timestamptz, o jsonb, "
    "day date)"
)
LANDED: dict[str, tuple[int, str, Any]] = {
    '{"id": 101, "v": 1.10}': (101, "v", "1.10"),
    '{"id": 102, "doc": {"amount": 12345678901234567.89}}': (102, "doc::text", '{"amount": 12345678901234567.89}'),
    '{"id": 103, "a": "1.500"}': (103, "a", Decimal("1.50")),
    '{"id": 104, "d": 0.1}': (104, "d", 0.1),
    '{"id": 105, "ts": "2026-01-02T03:04:05.678901Z"}': (
        105,
        "ts",
        datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    ),
    '{"id": 106, "o": {"x": 1, "at": "2026-01-02T03:04:05.678901Z"}}': (
        106,
        "o::text",
        '{"n": null, "x": 1, "at": "2026-01-02T03:04:05.678901Z"}',
    ),
    '\ufeff{"id": 107, "b": -128, "unknown": [1, {"a": 2}]}\n': (107, "b", -128),
}
"""What a record says: its id, a column of it, and its value."""

MALFORMED = {
    '{"id": 1, "b": 200}': "column b: 200 is outside of TINYINT (-128 to 127)",
    '{"id": 2, "a": 1.005}': "column a: 1.005 has more digits than DECIMAL(12,2)",
    '{"id": 3, "a": 0.004}': "column a: 0.004 has more digits than DECIMAL(12,2)",
    '{"id": 4, "a": "1,50"}': "column a: 1,50 is not a plain decimal number like -1234.50",
    '{"id": 5, "d": 1e400}': "column d: 1e400 is too large for DOUBLE",
    '{"id": 6, "v": "\\ud83d"}': "the text at character 15 has half of a surrogate pair, which is no character",
    '{"id": 9, "ts": 500000000000}': (
        "column ts: 500000000000 is a number, and nothing says what it counts; set format.timestampUnit"
    ),
    '{"id": 10, "ts": 1764523417915916238}': (
        "column ts: 1764523417915916238 is a number, and nothing says what it counts; set format.timestampUnit"
    ),
    '{"id": 11, "ts": "12:30"}': "column ts: 12:30 is not a time like 2026-01-02T03:04:05.678Z",
    '{"id": 12, "o": {}}': "column o.x: no value, and the column is NOT NULL",
    '{"id": 13, "day": "19723"}': "column day: 19723 is not a day like 2026-01-02",
    '{"id": 14}}{"id": 15}': "the record has more after its value, from character 10 on",
    '{"id": 16}}\n{"id": 17}': "the record has more after its value, from character 10 on",
    '{"id": 18}} not json at all': "the record has more after its value, from character 10 on",
    '{"id": 19},"_exactlyonce_row":{"id": 20}': "the record has more after its value, from character 10 on",
    '{"id": 21},"id":"x"': "the record has more after its value, from character 10 on",
    '{"id": 22, "id": 23}': "column id: its key occurs twice in the record",
}
"""Records, and why each is malformed."""


def prepared(rig: Rig, on_malformed: str) -> None:
    rig.sql(TABLE)
    rig.overrides |= {
        "spec.source.format": {"schema": SCHEMA, "onMalformed": on_malformed},
        "spec.sink.postgres.table": "odd",
        "spec.recovery.maxFailuresPerBatch": 1,
    }


def test_each_odd_record_lands_as_it_says_or_is_a_dead_letter_that_names_column_and_value(rig: Rig) -> None:
    prepared(rig, "DeadLetter")
    texts = [text for pair in zip(MALFORMED, [*LANDED] * 3, strict=False) for text in pair]
    rig.send([(place % 4, text.encode()) for place, text in enumerate(texts)])
    assert rig.run() == Done(completed=True), rig.story()
    letters = rig.sql("select value, error from exactlyonce.dead_letters")
    assert {bytes(value).decode(): error for value, error in letters} == MALFORMED
    assert len(letters) == len(MALFORMED)
    for id_, column, value in LANDED.values():
        found = rig.sql(f"select distinct {column} from odd where id = %s", id_)
        assert found == [(value,)], f"{id_}: {column}"
    assert rig.sql("select count(*) from odd") == [(len(texts) - len(MALFORMED),)]


def test_a_malformed_record_halts_the_stream_with_column_and_value(rig: Rig) -> None:
    prepared(rig, "Fail")
    rig.send([(0, b'{"id": 1}'), (0, b'{"id": 2, "a": 1.005}')])
    result = rig.run()
    assert isinstance(result, Halted)
    told = (
        f"Malformed record in topic {rig.name} partition 0 offset 1: column a: 1.005 has more digits than DECIMAL(12,2)"
    )
    assert told in result.message
    assert rig.sql("select count(*) from odd") == [(0,)]


def test_csv_as_rfc_4180_has_it_lands_text_for_text(rig: Rig) -> None:
    rig.sql("create table texts (id bigint, v text, w text)")
    rig.overrides |= {
        "spec.source.format": {
            "type": "Csv",
            "schema": "id BIGINT NOT NULL, v STRING, w STRING",
            "onMalformed": "DeadLetter",
        },
        "spec.sink.postgres.table": "texts",
    }
    lines = [b'1,"say ""hi""",x', b'2,"",x', b"3,,x", b"4,a,b\r\n", b'5,"a, ""b""",c', b'6,"a\nb", c ', b'7,a"b,c']
    rig.send([(0, line) for line in lines])
    assert rig.run() == Done(completed=True), rig.story()
    assert rig.sql("select id, v, w from texts order by id") == [
        (1, 'say "hi"', "x"),
        (2, "", "x"),
        (3, None, "x"),
        (4, "a", "b"),
        (5, 'a, "b"', "c"),
        (6, "a\nb", " c "),
    ]
    assert rig.sql("select error from exactlyonce.dead_letters") == [
        ("the field before character 3 has a quote in it and none around it",)
    ]
