"""Each test is in one suite, so that `make test` and `make test-connectors` together run all of them, and none twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exactlyonce.connectors.registry import CONNECTORS as OF_THE_PRODUCT
from scripts.run_parts import commands_of, main, suites_named
from tests.suites import CONNECTORS, CORE, PARTS, SUITES, NotInOneSuite, modules_of, suite_of, suites_of

ROOT = Path(__file__).resolve().parent.parent.parent
PYTEST = [sys.executable, "-m", "pytest"]


@pytest.mark.parametrize("part", PARTS)
def test_every_module_of_tests_is_in_a_suite_and_no_suite_names_another_one(part: str) -> None:
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / part).glob("**/test_*.py")}
    named = {module for suite in SUITES.values() for module in suite.modules(part)}
    assert there - named == set(), "modules without a suite: tests/suites.py"
    assert named - there == set(), "modules in tests/suites.py that are not there"


def test_no_suite_names_a_module_twice() -> None:
    for suite in SUITES.values():
        for part in PARTS:
            assert len(set(suite.modules(part))) == len(suite.modules(part))


def test_the_folders_that_are_divided_are_all_but_the_unit_tests() -> None:
    folders = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("**/test_*.py")}
    assert folders == {*PARTS, "unit"}


def test_every_connector_of_the_product_has_a_suite() -> None:
    assert set(OF_THE_PRODUCT) <= set(CONNECTORS)


def test_a_test_is_in_the_first_suite_of_its_module_or_in_the_one_of_its_mark() -> None:
    several = "tests/simulation/test_simulation.py"
    assert len(suites_of(several)) > 2
    assert suite_of(f"{several}::test_a[x]", None) == CORE
    assert suite_of(f"{several}::test_a[x]", "kinesis") == "kinesis"
    assert suite_of("tests/integration/test_doris_stream.py::test_a", None) == "doris"
    assert suite_of("tests/unit/test_lag.py::test_a", None) == CORE


@pytest.mark.parametrize(
    ("module", "marked"),
    [
        ("tests/integration/test_of_tomorrow.py", None),
        ("tests/integration/test_doris_stream.py", "kinesis"),
        ("tests/simulation/test_simulation.py", "none-such"),
    ],
)
def test_a_test_that_the_table_has_in_no_suite_is_refused(module: str, marked: str | None) -> None:
    with pytest.raises(NotInOneSuite, match=r"tests/suites\.py"):
        suite_of(f"{module}::test_a", marked)


TESTS = """
import pytest
def test_plain(): pass
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.suite("kinesis"))])
def test_marked(n): pass
"""


def collected(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Collect tests with the hooks of tests/conftest.py, as if they were those of tests/simulation/test_simulation.py."""
    module = folder / "tests" / "simulation" / "test_simulation.py"
    module.parent.mkdir(parents=True)
    module.write_text(tests)
    hooks = "pytest_addoption, pytest_collection_modifyitems"
    (folder / "conftest.py").write_text(f"from tests.conftest import {hooks}\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    command = [*PYTEST, "--collect-only", "-q", f"--rootdir={folder}", *options, str(module)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)


@pytest.mark.parametrize(
    ("suite", "tests"), [("core", {"test_plain", "test_marked[1]"}), ("kinesis", {"test_marked[2]"}), ("doris", set())]
)
def test_pytest_runs_the_tests_of_the_suite_that_it_is_given(tmp_path: Path, suite: str, tests: set[str]) -> None:
    ran = collected(tmp_path, TESTS, f"--suite={suite}")
    assert {line.split("::")[1] for line in ran.stdout.splitlines() if "::" in line} == tests, ran.stdout


def test_pytest_refuses_a_mark_that_does_not_agree_with_the_table(tmp_path: Path) -> None:
    ran = collected(tmp_path, TESTS.replace("kinesis", "cluster"))
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR, ran.stdout
    assert "its mark says cluster" in ran.stderr


@pytest.mark.parametrize("part", PARTS)
def test_both_commands_together_run_every_module_and_share_only_those_that_are_in_suites_of_both(part: str) -> None:
    core, others = set(modules_of([CORE], part)), set(modules_of(CONNECTORS, part))
    assert core | others == {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / part).glob("**/test_*.py")}
    assert all(suites_of(module)[0] == CORE and len(suites_of(module)) > 1 for module in core & others)


def test_a_part_runs_the_modules_of_its_suites_and_is_left_out_where_it_has_none() -> None:
    ((*_, suite, _durations),) = commands_of("simulation", ["kinesis"])
    assert suite == "--suite=kinesis"
    ((*command,),) = commands_of("integration+cluster", ["kinesis"])
    assert "tests/integration/test_kinesis_stream.py" in command
    assert not any("doris" in word or "tests/cluster" in word for word in command)
    assert (
        commands_of("cluster", ["kinesis"])
        == commands_of("unit", ["kinesis"])
        == commands_of("lint", ["kinesis"])
        == []
    )
    assert [command[3] for command in commands_of("unit", [CORE])[:1]] == ["tests/unit"]
    assert commands_of("lint", [CORE]) == commands_of("lint") != []


def test_a_command_that_would_run_no_test_says_so() -> None:
    with pytest.raises(SystemExit, match=r"No test of kinesis is in lint, unit: name other parts, or none\."):
        main(["--suite", "kinesis", "lint", "unit"])


def test_a_suite_that_does_not_exist_is_told_with_those_that_do() -> None:
    assert suites_named(["kinesis", "doris"]) == ["kinesis", "doris"]
    assert suites_named(["connectors"]) == list(CONNECTORS)
    with pytest.raises(SystemExit, match=r"There is no suite 'kinesys'\. Name one of these: core, protocol, kafka"):
        suites_named(["kinesys"])
