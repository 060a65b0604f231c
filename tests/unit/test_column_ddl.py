"""The DDL of a schema becomes types and comes back as DDL; what Spark or the decoder cannot use is refused with advice."""

from __future__ import annotations

import pytest

from exactlyonce.api.column_ddl import DdlInvalid, parse
from exactlyonce.api.columns import (
    ArrayType,
    Column,
    DecimalType,
    FloatingType,
    IntegerType,
    MapType,
    PlainType,
    StructType,
    TextType,
    ddl,
)

TAKEN = [
    "id BIGINT NOT NULL, customer STRING, amount DECIMAL(12,2), ts TIMESTAMP",
    "a byte, b short, c int, d long, e real, f double, g dec, h numeric(5), i decimal(38,38), j timestamp_ltz, k timestamp_ntz",
    "`a b` STRING COMMENT 'it''s, a comment', `c``d` varchar(10) not null comment 'x', `é` date, 1st BINARY, select BOOLEAN",
    "o STRUCT<x: INT NOT NULL COMMENT 'n', `y z` STRING, p: STRUCT<>>",
    "l ARRAY<ARRAY<STRING>>, m MAP<STRING, ARRAY<DECIMAL(5,2)>>",
    "id: BIGINT, v:STRING",
]
REFUSED = {
    "id": "it ends where more has to follow",
    "id BIGINT,": "it ends where more has to follow",
    "id BIGINT name STRING": "after id: expected a comma, found name",
    "id BIGINT NOT": "id: expected NULL, found the end",
    "id NUMBER": "id: NUMBER is not a type",
    "id CHAR(5)": r"id: CHAR is not a type; write VARCHAR\(n\) or STRING",
    "v VARIANT": "the text of the value, exactly as in the record",
    "v DECIMAL(39,2)": "needs 1 to 38 digits",
    "v DECIMAL(2,3)": "at most all of them after the point",
    "v ARRAY<INT": "expected >, found the end",
    "v MAP<ARRAY<INT>, INT>": "the keys of a MAP are texts",
    "v STRING COLLATE UNICODE": "without COLLATE",
    "é INT": "put names with such characters between backquotes",
    "a-b INT": "put names with such characters between backquotes",
    "id INT, ID STRING": "names id twice",
    "o STRUCT<x: INT, X: INT>": "o names x twice",
    "v " + "ARRAY<" * 60 + "INT" + ">" * 60: "deeper than 50 levels",
    "v VARCHAR(0)": "at least 1",
    "": "it ends where more has to follow",
}


def test_each_type_is_what_its_name_says() -> None:
    assert parse(
        "a TINYINT, b DOUBLE NOT NULL, c DECIMAL, d VARCHAR(3), e DATE, f MAP<STRING, INT>, g STRUCT<x: ARRAY<BINARY>>"
    ) == (
        Column("a", IntegerType.TINYINT),
        Column("b", FloatingType.DOUBLE, nullable=False),
        Column("c", DecimalType(10, 0)),
        Column("d", TextType(3)),
        Column("e", PlainType.DATE),
        Column("f", MapType(TextType(), IntegerType.INT)),
        Column("g", StructType((Column("x", ArrayType(PlainType.BINARY)),))),
    )


@pytest.mark.parametrize("text", TAKEN)
def test_columns_come_back_from_their_own_ddl(text: str) -> None:
    assert parse(ddl(parse(text))) == parse(text)


@pytest.mark.parametrize(("text", "reason"), REFUSED.items(), ids=range(len(REFUSED)))
def test_what_is_no_ddl_of_columns_is_refused_and_says_where(text: str, reason: str) -> None:
    with pytest.raises(DdlInvalid, match=reason):
        parse(text)
