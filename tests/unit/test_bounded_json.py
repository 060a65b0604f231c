"""A text that somebody else wrote is counted before it is parsed."""

from __future__ import annotations

import pytest

from exactlyonce.bounded_json import JsonRefused, parse_json


@pytest.mark.parametrize(
    "text", ["[1, 2, 3]", '{"a": {}, "b": 1}', '["[[[{{{,,,", 1]', '["\\\\\\",,,,"]', '["a", "b", "c"]', "7"]
)
def test_a_text_with_as_many_values_as_may_be_is_parsed(text: str) -> None:
    assert parse_json(text, 3) == parse_json(text.encode(), 3) == parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        "[1,2,3,4]",
        "[[[[]]]]",
        '{"a":{"b":{"c":{"d":1}}}}',
        '["\\"",1,"[",2,",",3]',
        "[[],[],",
        '["","","","","',
        ",,,,",
    ],
)
def test_a_text_with_more_values_is_refused_before_it_is_parsed(text: str) -> None:
    with pytest.raises(JsonRefused, match="more than 3 values"):
        parse_json(text, 3)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"", b"\xff", "[]".encode("utf-16"), b"9" * 5000, b'"\\', b"{,}"])
def test_whatever_else_is_no_json_is_refused_in_the_same_way(content: bytes) -> None:
    with pytest.raises(JsonRefused):
        parse_json(content)


def test_a_text_of_many_quotes_and_no_end_is_counted_in_one_walk() -> None:
    """Were each quote the beginning of a string to the end of the text, this would take hours."""
    with pytest.raises(JsonRefused, match="not JSON"):
        parse_json('"' + '\\"' * 100_000 + "," * 5, 3)
