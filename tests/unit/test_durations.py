"""Durations: what is read and what is refused, and that a time comes back as it was written."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from exactlyonce.schema.model import parse_duration, render_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0), ("500ms", 0.5), ("10s", 10), ("5m", 300), ("1h", 3600), ("1h30m", 5400), ("1h5ms", 3600.005),
        ("90m", 5400), ("1500ms", 1.5), ("0h0m0s0ms", 0), ("007s", 7), ("9999h", 9999 * 3600),
    ],
)  # fmt: skip
def test_a_duration_is_the_sum_of_its_parts(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", " ", "5", "s", "5 s", " 5s", "5s\n", "1.5s", "-5s", "+5s", "5s5m", "5s5s", "5d", "5S", "1h30", "٣s", "1e3s",
     "99999h", "9" * 400 + "s", 5, 5.0, None, True, [], b"5s"],
)  # fmt: skip
def test_anything_else_is_refused_with_a_way_to_write_it(text: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write it like 500ms, 10s, 5m or 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("seed", range(200))
def test_every_duration_of_whole_milliseconds_comes_back_in_its_shortest_form(seed: int) -> None:
    dice = random.Random(seed)
    duration = timedelta(milliseconds=dice.choice([1, 1000, 60_000, 3_600_000]) * dice.randint(0, 9000))
    text = render_duration(duration)
    assert parse_duration(text) == duration
    assert text == "0s" or not any(part.startswith("0") for part in text.replace("ms", "x").replace("h", " ").split())
