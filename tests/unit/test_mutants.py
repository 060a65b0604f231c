"""Which modules are mutated, and which worlds of the simulation run each."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.mutants import CORE, COSTS, ROOT, SIMULATION, WORLDS, Kept, Outcome, _run, shares
from scripts.mutated_code import Mutant

MUTATED = {file.relative_to(ROOT) for pattern in CORE for file in ROOT.glob(pattern)}
SPARK = Path("spark_apps/exactlyonce_spark")


def test_every_module_that_a_landing_goes_through_is_mutated() -> None:
    names = ("planned", "witnesses", "source_check", "log_watch", "growth", "manifest_landing", "landing_elsewhere")
    two_phases = (
        "two_phase_landing",
        "two_phase_finish",
        "two_phase_submit",
        "staged_loads",
        "rows_again",
        "load_labels",
    )
    assert {SPARK / f"{name}.py" for name in (*names, *two_phases)} <= MUTATED
    assert Path("operator/exactlyonce/ledger/two_phase.py") in MUTATED


def test_no_pattern_has_lost_its_files() -> None:
    assert all(list(ROOT.glob(pattern)) for pattern in CORE)
    for pattern in WORLDS:
        assert any(Path("/", file).match(pattern) for file in MUTATED), pattern


@pytest.mark.parametrize(
    ("file", "worlds"),
    [
        ("landing.py", ["database=600"]),
        ("two_phase_finish.py", ["two phases=40"]),
        ("two_phase_submit.py", ["staged loads=60"]),
        ("staged_loads.py", ["staged loads=60"]),
        ("manifest_landing.py", ["files=600"]),
        ("landing_elsewhere.py", ["files=300", "two phases=20"]),
        ("growth.py", ["kinesis=37", "database=300"]),
    ],
)
def test_a_module_is_run_by_the_worlds_that_have_what_it_is_for(file: str, worlds: list[str]) -> None:
    assert shares(SPARK / file, 600) == worlds


def test_each_world_is_known_by_its_cost() -> None:
    assert {world for worlds in WORLDS.values() for world in worlds} <= {*COSTS}


def test_a_run_that_was_stopped_goes_on_with_what_was_not_tested(tmp_path: Path) -> None:
    first = Mutant(SPARK / "batch.py", 1, 2, 3, "a", "b")
    second = Mutant(SPARK / "batch.py", 1, 2, 3, "a", "c")
    third = Mutant(SPARK / "batch.py", 1, 2, 3, "a", "d")
    file = tmp_path / "outcomes.jsonl"
    Kept(file, 600).add(Outcome(first, "survived"))
    with file.open("a") as cut_short:
        cut_short.write('\n["spark_apps')
    Kept(file, 600).add(Outcome(third, "killed by unit tests"))
    kept = Kept(file, 600)
    assert kept.outcome(first) == Outcome(first, "survived")
    assert kept.outcome(second) is None
    assert kept.outcome(third) == Outcome(third, "killed by unit tests")
    assert Kept(file, 300).outcome(first) is None


def test_each_world_runs_without_a_violation_where_nothing_is_mutated() -> None:
    """A script that cannot run, such as after a world was renamed, would count as killing every mutant."""
    assert _run(["-c", SIMULATION, *(f"{world}=1" for world in COSTS)], ROOT / "operator", 60) is None
