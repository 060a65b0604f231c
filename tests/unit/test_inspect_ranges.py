"""Ranges of any source, in words for a person."""

from __future__ import annotations

import pytest

from exactlyonce.inspect.ranges import range_text

A, B = '{"orders":{"0":400,"1":7}}', '{"orders":{"0":440,"1":7}}'


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (None, '{"logOffset":0}', "entry 0"),
        ('{"logOffset":0}', '{"logOffset":1}', "entry 1"),
        ('{"logOffset":1}', '{"logOffset":4}', "entries 2 to 4"),
        ('{"logOffset":4}', '{"logOffset":4}', "nothing new"),
        (A, None, "no offset"),
        (A, A, "nothing new"),
        ("opaque-1", "opaque-2", "opaque-1 to opaque-2"),
        (None, "opaque-2", "? to opaque-2"),
    ],
)
def test_a_range_is_told_by_what_moved(start: str | None, end: str | None, words: str) -> None:
    assert range_text(start, end) == words


def test_partitions_that_have_not_moved_are_left_out() -> None:
    text = range_text(A, B)
    assert "orders/0" in text
    assert "40" in text
    assert "orders/1" not in text
