"""docs/checkpoint-states.md says of Spark's own logs of files what `exactlyonce inspect` says of each golden folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest

from exactlyonce.inspect.compare import Comparison
from exactlyonce.inspect.file_log import FileLogDamage
from exactlyonce.inspect.output import OutputOddity
from tests.checkpoints import STATES_PAGE
from tests.file_queries import made, states
from tests.inspected import FAILS, READERS_FAIL, RESTARTS
from tests.unit.test_inspect_file_queries import inspected

OF_A_SOURCE, OF_A_SINK = (
    "## Spark's own files: the log of a file source",
    "## Spark's own files: the log of a file sink",
)


@dataclass(frozen=True)
class Row:
    """A state of a row, and what the page says of it."""

    state: str
    spark: str
    told: str


def rows(section: str) -> list[Row]:
    """The rows of a section's table, one for each state that a row names; their words stand in the same order."""
    text = STATES_PAGE.read_text().partition(section)[2].partition("\n## ")[0]
    found = []
    for line in [line for line in text.splitlines() if line.startswith("| ")][1:]:
        on_disk, spark, told = (cell.strip() for cell in line.strip("|").split(" | "))
        named = on_disk.partition(":")[0].split(", ")
        words = told.split(", ") if len(named) > 1 else [told]
        found += [Row(state, spark, word) for state, word in zip(named, words, strict=True)]
    return found


def test_every_state_has_a_row() -> None:
    told = [row.state for section in (OF_A_SOURCE, OF_A_SINK) for row in rows(section)]
    assert sorted(told) == sorted(states())


@pytest.mark.parametrize("row", rows(OF_A_SOURCE), ids=lambda row: row.state)
def test_a_row_of_a_source_says_what_the_command_says_of_its_restart(tmp_path: Path, row: Row) -> None:
    found = inspected(made(row.state, tmp_path))[1]["checkpoint"]
    expected = [f"`{found['restart']['kind']}`"]
    if found["restart"]["batch"] is not None:
        expected.append(str(found["restart"]["batch"]))
    assert row.told.split(", ") == [*expected, *(it["name"] for it in found["oddities"])]
    assert row.spark.startswith("fails" if row.state in FAILS else "continues")


@pytest.mark.parametrize("row", rows(OF_A_SINK), ids=lambda row: row.state)
def test_a_row_of_a_sink_names_the_comparison_or_the_damage(tmp_path: Path, row: Row) -> None:
    found = inspected(made(row.state, tmp_path))[1]
    names = {it["name"] for it in found["output"]["oddities"]} | {found["comparison"]["kind"]}
    named = re.findall(r"[A-Z]\w*[a-z][A-Z]\w+|Equal", row.told)
    assert named, row.told
    assert named[0] in names
    assert set(named[1:]) <= names | {"SinkAhead"}, "what else the page says of it"
    assert ("readers fail" in row.spark or row.spark == "as above") == (
        row.state in READERS_FAIL or row.state == "sink-behind"
    )
    again = row.spark.startswith("runs N again")
    assert again == (RESTARTS.get(row.state, ("Fails", 0))[0] == "RunsAgain")


def test_every_name_of_the_code_is_on_the_page() -> None:
    names = {it.value for it in (*FileLogDamage, *OutputOddity)} | {kind.__name__ for kind in get_args(Comparison)}
    text = STATES_PAGE.read_text()
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()
