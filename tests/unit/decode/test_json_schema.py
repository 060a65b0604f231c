"""JSON Schema: a record has to be valid by it, and fit its columns."""

from __future__ import annotations

import json

import pytest

from exactlyonce.api.column_ddl import parse
from exactlyonce_spark.decode.json_schema_format import JsonSchemaDecoder, JsonSchemaUnusable
from exactlyonce_spark.decode.rules import Rules
from tests.unit.decode.answers import both_ways

SCHEMA = json.dumps(
    {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "child": {"$ref": "#"},
            "code": {"pattern": "^[A-Z]+$"},
        },
    }
)


def test_a_record_that_is_not_valid_is_malformed_and_says_where() -> None:
    decoder = JsonSchemaDecoder(parse("id TINYINT, code STRING"), Rules(), SCHEMA)
    values = [
        b'{"id": 5, "code": "AB"}',
        b'\xef\xbb\xbf{"id": 6}',
        b'{"id": 0}',
        b'{"code": "A"}',
        b'{"id": 7, "code": "a"}',
        b'{"id": 8, "child": {"id": 0}}',
        b'{"id": 200}',
        b'{"id": 9}}',
        b'{"id": 10, "x": 1e400}',
        None,
    ]
    found = both_ways(decoder, values)
    assert found[:2] == [{"id": 5, "code": "AB"}, {"id": 6, "code": None}]
    assert found[2] == "not valid by the JSON Schema: id: 0 is less than the minimum of 1"
    assert found[3] == 'not valid by the JSON Schema: the record: "id" is a required property'
    assert found[4].startswith("not valid by the JSON Schema: code: ")
    assert found[5].startswith("not valid by the JSON Schema: child.id: ")
    assert found[6] == "column id: 200 is outside of TINYINT (-128 to 127)"
    assert found[7] == "the record has more after its value, from character 9 on"
    assert found[8].startswith("the JSON Schema cannot be checked: ")
    assert found[9] == "tombstone"


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        '{"type": "strin"}',
        '{"$ref": "http://127.0.0.1:9/x.json"}',
        '{"$ref": "file:///etc/hostname"}',
        '{"$ref": "#/nowhere"}',
        " " * (1 << 21),
    ],
)
def test_a_schema_that_is_none_or_refers_to_an_address_is_refused(schema: str) -> None:
    with pytest.raises(JsonSchemaUnusable, match=r"the JSON Schema (is unusable|has more)"):
        JsonSchemaDecoder(parse("id INT"), Rules(), schema)
