"""docs/checkpoint-states.md says what the code and the golden checkpoints say: no state is missing, none is told otherwise."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import get_args

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.state import CheckpointState, Damage, Damaged, read_generation
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.reconcile.verdicts import Verdict
from tests.checkpoints import GOLDEN, STATES_PAGE, golden_states
from tests.restart_table import FAILS, GOES_ON, GOES_ON_WRONGLY

VERDICTS = {verdict.__name__ for verdict in get_args(Verdict)}


@dataclass(frozen=True)
class Row:
    """One row of a table of golden folders."""

    folder: str
    on_disk: str
    spark: str
    name: str
    verdict: str


def rows() -> list[Row]:
    lines = [line for line in STATES_PAGE.read_text().splitlines() if line.startswith("| `")]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [Row(cells[0].strip("` "), *cells[1:]) for cells in found]


def name_of(state: CheckpointState) -> str:
    return state.damage.value if isinstance(state, Damaged) else type(state).__name__


def test_every_golden_checkpoint_has_one_row() -> None:
    assert sorted(row.folder for row in rows()) == golden_states()


def test_every_name_that_the_code_gives_stands_in_a_row() -> None:
    assert {damage.value for damage in Damage} <= {row.name for row in rows()}
    text = STATES_PAGE.read_text()
    for state in get_args(CheckpointState):
        assert state is Damaged or f"| {state.__name__} |" in text, f"{state.__name__} has no row"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.folder)
def test_a_row_gives_the_name_that_the_code_gives(row: Row) -> None:
    assert row.name.split(",")[0] == name_of(read_generation(LocalLogStore(str(GOLDEN)), CODEC, row.folder))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.folder)
def test_a_row_tells_what_spark_was_seen_to_do(row: Row) -> None:
    if row.folder in FAILS:
        assert row.spark.startswith("Fails")
        told = re.sub(r"\W+", " ", row.spark).lower()
        ran_again = bool(FAILS[row.folder][0])
        assert ("again" in told) == ran_again, "a batch that is run before it fails is told"
    elif row.folder in GOES_ON_WRONGLY:
        assert row.spark.startswith("Continues wrongly")
    elif row.folder in GOES_ON:
        assert re.match(r"Continues( with| again|;)", row.spark)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.folder)
def test_a_row_names_verdicts_that_exist_and_no_damage_is_gone_on_with(row: Row) -> None:
    named = set(re.findall(r"`([A-Z]\w+)`", row.verdict))
    assert named <= VERDICTS
    if row.name.split(",")[0] in {damage.value for damage in Damage}:
        assert named == {"RebuildFromSink"}
