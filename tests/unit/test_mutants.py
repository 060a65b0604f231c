"""Which modules are mutated, and which worlds of the simulation run each."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.coverage_map import MOST_TESTS, CoverageMap, seconds_told
from scripts.mutant_trials import COSTS, WORLDS, failed_in, prepare, shares, try_simulation, try_unit_tests
from scripts.mutants import CORE, ROOT, Copies, Kept, Outcome, _fate_in_unit_tests, newer_tests
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
    assert {SPARK / f"{name}.py" for name in (*names, *two_phases, "quarantine", "settling")} <= MUTATED
    assert Path("operator/exactlyonce/ledger/two_phase.py") in MUTATED


def test_no_pattern_has_lost_its_files() -> None:
    assert all(list(ROOT.glob(pattern)) for pattern in CORE)
    for pattern in WORLDS:
        assert any(Path("/", file).match(pattern) for file in MUTATED), pattern


@pytest.mark.parametrize(
    ("file", "worlds"),
    [
        ("landing.py", {"database": 600}),
        ("two_phase_finish.py", {"two phases": 40}),
        ("two_phase_submit.py", {"staged loads": 60}),
        ("staged_loads.py", {"staged loads": 60}),
        ("manifest_landing.py", {"files": 600}),
        ("landing_elsewhere.py", {"files": 300, "two phases": 20}),
        ("quarantine.py", {"quarantine": 600}),
        ("growth.py", {"kinesis": 37, "database": 300}),
    ],
)
def test_a_module_is_run_by_the_worlds_that_have_what_it_is_for(file: str, worlds: dict[str, int]) -> None:
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


def test_what_survived_is_tested_again_where_tests_were_written_since(tmp_path: Path) -> None:
    survivor, killed = Mutant(SPARK / "batch.py", 1, 2, 3, "a", "b"), Mutant(SPARK / "batch.py", 1, 2, 3, "a", "c")
    file = tmp_path / "outcomes.jsonl"
    Kept(file, 600).add(Outcome(survivor, "survived, and no unit test passes it"))
    Kept(file, 600).add(Outcome(killed, "killed by unit tests"))
    kept = Kept(file, 600)
    assert kept.outcome(survivor, again=True) is None
    assert kept.outcome(killed, again=True) == Outcome(killed, "killed by unit tests")


def test_the_tests_of_a_line_come_the_fastest_first_those_of_a_parameter_together() -> None:
    told = """
0.40s call     tests/unit/test_a.py::test_slow
0.01s setup    tests/unit/test_a.py::test_slow
0.02s call     tests/unit/test_b.py::test_quick[a parameter]
0.03s call     tests/unit/test_b.py::test_quick[another]
"""
    seconds = seconds_told(told)
    assert seconds == pytest.approx({"tests/unit/test_a.py::test_slow": 0.41, "tests/unit/test_b.py::test_quick": 0.05})
    nodes = ["tests/unit/test_a.py::test_slow", "tests/unit/test_b.py::test_quick", "tests/unit/test_c.py::test_untold"]
    tests = CoverageMap({("x.py", 7): nodes}, {}, seconds)
    assert tests.of(Path("x.py"), 7) == [nodes[::-1]]


def test_all_tests_of_a_line_are_tried_some_of_every_module_first() -> None:
    nodes = [f"tests/unit/test_{module}.py::test_{number}" for module in "ab" for number in range(MOST_TESTS)]
    first, second = CoverageMap({("x.py", 7): nodes}, {}).of(Path("x.py"), 7)
    assert sorted([*first, *second]) == sorted(nodes)
    assert {node.partition("::")[0] for node in first} == {"tests/unit/test_a.py", "tests/unit/test_b.py"}
    assert CoverageMap({}, {}).of(Path("x.py"), 7) == []


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    prepare()
    return Copies(tmp_path_factory.mktemp("copies"), 1)


WITH_WRONG_ANSWERS = (ROOT / SPARK / "settling.py").read_text().replace("return ", "return not ")
"""It can be imported, and what it answers is wrong."""


def settling_replaced_by(words: str) -> Mutant:
    return Mutant(SPARK / "settling.py", 1, 0, len((ROOT / SPARK / "settling.py").read_bytes()), "", words)


def test_each_world_runs_without_a_violation_where_nothing_is_mutated(copies: Copies) -> None:
    """A trial that cannot run, such as after a world was renamed, would count as killing every mutant."""
    with copies.whole() as copy:
        assert try_simulation(copy, dict.fromkeys(COSTS, 1)) is None


def test_a_trial_runs_what_is_in_the_copy(copies: Copies) -> None:
    tests = ["tests/unit/test_settling.py"]
    with copies.mutated(settling_replaced_by("raise SystemError")) as copy:
        assert try_unit_tests(copy, tests) == ""
    with copies.mutated(settling_replaced_by(WITH_WRONG_ANSWERS)) as copy:
        assert try_unit_tests(copy, tests) == ""
        assert (failed_in(copy) or "").startswith("tests/unit/test_settling.py::test_")
    with copies.whole() as copy:
        assert try_unit_tests(copy, tests) is None


def test_a_newer_test_that_is_not_there_ends_the_run_or_it_would_count_as_a_witness_of_every_mutant() -> None:
    with pytest.raises(SystemExit, match=r"pytest finds no test in tests/unit/test_nowhere\.py"):
        newer_tests(["tests/unit/test_nowhere.py"], Path())


def test_newer_tests_are_asked_for_by_function_so_that_one_can_be_left_out_and_none_may_fail_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fates: list[str | None] = [None, ""]
    monkeypatch.setattr("scripts.mutants.try_unit_tests", lambda copy, nodes: fates.pop(0))
    monkeypatch.setattr("scripts.mutants.failed_in", lambda copy: SLOW)
    assert newer_tests([], Path()) == []
    nodes = newer_tests(["tests/unit/test_settling.py"], Path())
    assert len(nodes) > 1
    assert all(node.startswith("tests/unit/test_settling.py::test_") for node in nodes)
    monkeypatch.setattr("scripts.mutants.node_ids", lambda asked: [SLOW])
    with pytest.raises(SystemExit, match=f"{SLOW} fails without any mutant"):
        newer_tests(["tests/unit/test_x.py"], Path())


SLOW, QUICK = "tests/unit/test_x.py::test_slow", "tests/unit/test_x.py::test_quick"


@pytest.mark.parametrize(
    ("fails_without", "seconds", "fate"),
    [
        ({f"{SLOW}[late]"}, 0.6, None),  # it is no witness, and the other one does not fail
        ({f"{SLOW}[late]"}, 0.4, ""),  # so quick a test is not asked again
        (frozenset[str](), 0.6, ""),
    ],
)
def test_a_slow_test_that_fails_without_the_mutant_too_is_no_witness(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, fails_without: set[str], seconds: float, fate: str | None
) -> None:
    asked: list[list[str]] = []

    def tried(copy: Path, nodes: list[str]) -> str | None:
        asked.append(nodes)
        is_mutated = (copy / "exactlyonce_spark" / "settling.py").read_text() == "a mutant"
        return "" if SLOW in nodes or (not is_mutated and set(nodes) & fails_without) else None

    monkeypatch.setattr("scripts.mutants.try_unit_tests", tried)
    monkeypatch.setattr("scripts.mutants.failed_in", lambda copy: f"{SLOW}[late]" if SLOW in asked[-1] else None)
    tests = CoverageMap({}, {}, {SLOW: seconds})
    assert _fate_in_unit_tests(copies, settling_replaced_by("a mutant"), [QUICK, SLOW], tests) == fate
    assert ([QUICK] in asked) == (fate is None)


def test_a_trial_that_runs_for_ever_is_ended_and_told_as_that(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.mutant_trials.UNIT_SECONDS", 1)
    with copies.mutated(settling_replaced_by("while True: pass")) as copy:
        assert try_unit_tests(copy, ["tests/unit/test_settling.py"]) == " (it ran for ever)"
