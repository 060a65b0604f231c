"""The last message of a driver fit where the launcher reads them, and other text is not taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exactlyonce.launch.last_message import MAX_BYTES, Ending, LastMessage, parse_cut_message, parse_last_message

RANGES = '{"orders":{"0":[3,5],"1":[7,7]}}'
MANY = json.dumps({"orders": {str(number): [10**15, 10**15 + 1] for number in range(400)}}, separators=(",", ":"))


@pytest.mark.parametrize("ending", list(Ending))
@pytest.mark.parametrize(("batch", "ranges"), [(None, None), (0, RANGES), (7, "{}")])
def test_last_message_are_read_as_they_were_said(ending: Ending, batch: int | None, ranges: str | None) -> None:
    words = LastMessage(ending, "It broke: „so“ \n\t\\.", batch, ranges)
    assert parse_last_message(words.render()) == words


@pytest.mark.parametrize(
    "message",
    ["x" * 10_000, "ö" * 10_000, "\n" * 10_000, "😀" * 10_000, '"' * 10_000],
    ids=["letters", "umlauts", "line breaks", "emoji", "quotes"],
)
@pytest.mark.parametrize("ranges", [None, RANGES, MANY], ids=["without ranges", "with ranges", "with too many ranges"])
def test_last_message_always_fit_and_keep_ending_batch_and_the_message_beginning(
    message: str, ranges: str | None
) -> None:
    text = LastMessage(Ending.BATCH_FAILED, message, 7, ranges).render()
    assert len(text.encode()) <= MAX_BYTES
    parsed = parse_last_message(text)
    assert parsed is not None
    assert (parsed.ending, parsed.batch) == (Ending.BATCH_FAILED, 7)
    assert message.startswith(parsed.message)
    assert len(parsed.message) >= 300, "it still says something"


def test_ranges_are_kept_whole_before_the_message_is() -> None:
    parsed = parse_last_message(LastMessage(Ending.BATCH_FAILED, "x" * 10_000, 7, RANGES).render())
    assert parsed is not None
    assert parsed.ranges == RANGES


@pytest.mark.parametrize("too_large", [False, True])
@pytest.mark.parametrize("count", [None, 3])
def test_rows_that_the_sink_refused_are_told_by_whole_and_by_cut_messages(count: int | None, too_large: bool) -> None:
    text = LastMessage(Ending.BATCH_FAILED, "It broke.", 7, RANGES, too_large, refused_rows=count).render()
    for found in (parse_last_message(text), parse_cut_message(text[:-10])):
        assert found is not None
        assert (found.refused_rows, found.too_large, found.batch) == (count, too_large, 7)


@pytest.mark.parametrize("count", [-1, 0, True, 1.5, "3", [3], 10**30])
def test_what_is_no_number_of_rows_is_none(count: Any) -> None:
    found = parse_last_message(json.dumps({"reason": "BatchFailed", "refusedRows": count}))
    assert found is not None
    assert found.refused_rows is None


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "killed", "[]", "null", "7", '"Drained"', "{}", '{"reason": "Sleepy"}', '{"reason": null}',
        '{"reason": ["Drained"]}', LastMessage(Ending.DRAINED, "It ended.").render()[:-1],
    ],
)  # fmt: skip
def test_what_is_empty_cut_off_or_something_else_is_no_last_word(text: str) -> None:
    assert parse_last_message(text) is None
