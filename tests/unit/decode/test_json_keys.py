"""A key that occurs twice is found however it is written and whatever the texts around it look like."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactlyonce.api.column_ddl import parse
from exactlyonce_spark.decode.json_format import JsonDecoder
from exactlyonce_spark.decode.json_keys import bytes_of, key_count, key_places
from exactlyonce_spark.decode.rules import Rules
from tests.unit.decode.answers import both_ways

TEXTS = st.text('":\\ {}a\n', max_size=6)
DOCUMENTS = st.recursive(
    st.one_of(TEXTS, st.integers(0, 9)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=9,
)


def keys_of(document: object) -> int:
    if isinstance(document, dict):
        return len(document) + sum(map(keys_of, document.values()))
    return sum(map(keys_of, document)) if isinstance(document, list) else 0


@settings(max_examples=300, deadline=None, database=None)
@given(
    st.lists(DOCUMENTS, max_size=5),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :"), (",", "\n\t :")]),
    st.booleans(),
)
def test_no_key_is_missed(documents: Sequence[object], separators: tuple[str, str], ascii_only: bool) -> None:
    text = "".join(json.dumps(it, separators=separators, ensure_ascii=ascii_only) for it in documents).encode()
    found = key_count(bytes_of(text))
    assert found >= sum(map(keys_of, documents))
    assert found == len(key_places(bytes_of(text)))


@pytest.mark.parametrize("block", [3, 4, 5])
def test_a_key_is_counted_wherever_a_block_ends(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exactlyonce_spark.decode.json_keys._BLOCK", block)
    for text, count in (
        (b'{"a":1,"b":{"c":2}}', 3),
        (b'{"a" :1}', 1),
        (b'{"a":"x\\":y"}', 1),
        (b'{"a\\\\":1}', 1),
        (b"12", 0),
        (b"", 0),
    ):
        assert key_count(bytes_of(text)) == count


@pytest.mark.parametrize(
    "value",
    [
        b'{"v":1,"v":2}',
        b'{"v":1,"\\u0076":2}',
        b'{"v":1,"v" :2}',
        b'{"v":1,"v"\n\t:2}',
        b'{"v":1,"w":"\\":","v":2}',
        b'{"v":1,"w":{"x":1},"v":2}',
        b'{"w":":a","v":1,"v":2}',
        b'{"v":null,"v":1}',
        b'{"v":1,"v":null}',
        b'{"v":1,"v":1}',
    ],
)
def test_a_column_that_is_there_twice_makes_its_record_malformed_among_any_others(value: bytes) -> None:
    decoder = JsonDecoder(parse("v INT, u INT"), Rules())
    others = [
        b'{"v":1}',
        b'{"v":1,"w":{"v":2,"w":3},"u":1}',
        b'{"w":":","v":1}',
        b'{"u":2,"w":"\\\\"}',
        b'{"x y":[{"v":1},{"v":2}]}',
    ] * 40
    for _ in range(3):
        found = both_ways(decoder, [*others, value, *others])
        assert found[len(others)] == "column v: its key occurs twice in the record"
        assert sum(isinstance(it, str) for it in found) == 1
