"""Tests that take minutes come first, and those that share what their module has started stay together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.scheduling import longest_first

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_longest_come_first_and_the_others_keep_their_order() -> None:
    tests = [("a", None, 0.0), ("b", None, 30.0), ("c", None, 0.0), ("d", None, 90.0), ("e", None, 0.0)]
    assert longest_first(tests) == ["d", "b", "a", "c", "e"]


def test_a_group_is_as_long_as_its_tests_together_and_is_not_torn_apart() -> None:
    tests = [
        ("a", None, 0.0),
        ("m1", "m", 0.0),
        ("b", None, 50.0),
        ("m2", "m", 60.0),
        ("c", None, 0.0),
        ("m3", "m", 0.0),
    ]
    assert longest_first(tests) == ["m1", "m2", "m3", "b", "a", "c"]
    short = [(name, group, 0.0) for name, group, _ in tests]
    assert longest_first(short) == ["a", "m1", "m2", "m3", "b", "c"]


def test_the_tests_of_a_module_run_on_one_worker_where_they_share_a_fixture(tmp_path: Path) -> None:
    sharing, alone = tmp_path / "test_sharing.py", tmp_path / "test_alone.py"
    # So few that pytest-xdist hands all of them out at the start: to each worker in turn, however fast one is.
    test = "import pytest\n@pytest.mark.parametrize('n', range(2))\ndef test_it(n): pass\n"
    sharing.write_text(f'{test}@pytest.fixture(scope="module")\ndef started(): pass\n')
    alone.write_text(test)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    command = [
        "-m",
        "pytest",
        "-v",
        "-n2",
        "--dist=loadscope",
        "--no-loadscope-reorder",
        f"--rootdir={tmp_path}",
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    ran = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
    )
    workers = {
        module.stem: {line.split("]")[0] for line in ran.stdout.splitlines() if f"PASSED {module.name}" in line}
        for module in (sharing, alone)
    }
    assert (len(workers["test_sharing"]), len(workers["test_alone"])) == (1, 2), ran.stdout
