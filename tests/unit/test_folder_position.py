"""How far a folder has been read, as one integer and as Spark's offset log has it."""

from __future__ import annotations

import json

import pytest

from exactlyonce.checkpoint.files import FileEmpty, FileTorn
from exactlyonce.connectors.files.source_codec import CODEC
from exactlyonce.connectors.files.source_position import (
    MOST_FILES,
    NOTHING_READ,
    MalformedPosition,
    SourceFile,
    after,
    count_of,
    from_text,
    to_text,
)
from exactlyonce.positions.ranges import PARTITION_END, Partition, Positions
from tests.folder_in_memory import source_file

FILES = [source_file(f"{number}.json", number) for number in range(5)]
ORIGIN = "/incoming"


def test_positions_grow_with_each_file_and_stay_below_the_end_of_a_partition() -> None:
    reached = [after(NOTHING_READ, FILES[:number]) for number in range(6)]

    assert reached == sorted(set(reached))
    assert [count_of(position) for position in reached] == list(range(6))
    assert from_text(f"{MOST_FILES}:{'f' * 56}") < PARTITION_END


def test_a_position_is_the_same_in_one_step_or_in_several() -> None:
    assert after(after(NOTHING_READ, FILES[:2]), FILES[2:]) == after(NOTHING_READ, FILES)


@pytest.mark.parametrize(
    "other",
    [
        [*FILES[:3], FILES[4], FILES[3]],
        [*FILES[:4], SourceFile("4.json", 11, 4000, "4")],
        [*FILES[:4], SourceFile("4.json", 10, 4001, "4")],
        [*FILES[:4], SourceFile("4.json", 10, 4000, "5")],
        [*FILES[:4], SourceFile("5.json", 10, 4000, "4")],
    ],
)
def test_other_files_or_another_order_lead_to_another_position(other: list[SourceFile]) -> None:
    assert after(NOTHING_READ, other) != after(NOTHING_READ, FILES)


def test_a_text_stands_for_a_position_and_is_its_only_one() -> None:
    position = after(NOTHING_READ, FILES)

    assert to_text(NOTHING_READ) == "0"
    assert to_text(position).startswith("5:")
    assert [from_text(to_text(each)) for each in (NOTHING_READ, position)] == [NOTHING_READ, position]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "05:" + "0" * 56,
        "0:" + "0" * 56,
        "5:" + "0" * 55,
        "5:" + "F" * 56,
        "1e3:0",
        f"{MOST_FILES + 1}:{'0' * 56}",
    ],
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(MalformedPosition):
        from_text(text)


def test_sparks_offset_log_holds_a_position_as_a_text_and_gives_it_back() -> None:
    positions = Positions({Partition(ORIGIN, 0): after(NOTHING_READ, FILES)})

    entry = CODEC.render_entry(positions)

    assert json.loads(entry) == {ORIGIN: {"0": to_text(positions[Partition(ORIGIN, 0)])}}
    assert CODEC.parse_entry(entry) == positions
    assert CODEC.parse_start(CODEC.render_start(positions)) == positions
    assert CODEC.parse_entry('{"/incoming": {}}') == Positions(), "the folder before batch 0"


@pytest.mark.parametrize(
    "entry",
    [
        "[]",
        "{",
        '{"/incoming": 5}',
        '{"/incoming": {"1": "0"}}',
        '{"/incoming": {"0": 0}}',
        '{"/incoming": {"0": "5"}}',
    ],
)
def test_what_no_reader_of_a_folder_wrote_is_torn(entry: str) -> None:
    with pytest.raises(FileTorn):
        CODEC.parse_entry(entry)
    with pytest.raises(FileEmpty):
        CODEC.parse_start(b"")
