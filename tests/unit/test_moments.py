"""A moment in milliseconds: what was written before it is never taken for what was written at it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from exactlyonce.schema.moment import first_milliseconds

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("microseconds", "expected"), [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (-1, 0), (-1000, -1), (123_000, 123)]
)
def test_a_fraction_of_a_millisecond_counts_as_the_next(microseconds: int, expected: int) -> None:
    found = first_milliseconds(NOON + timedelta(microseconds=microseconds))
    assert found - first_milliseconds(NOON) == expected
    assert first_milliseconds(NOON) == 1_769_860_800_000
