"""`make` on a machine that lacks something: one sentence that says what, and nothing is installed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "set_up.py"
ADVICE = "install a Java runtime, version 17 or newer (on Debian and Ubuntu: openjdk-17-jre-headless)."


def set_up(folder: Path) -> tuple[int, str]:
    """Run the script with nothing on the PATH but this folder, from a copy of it, and return its status and what it says."""
    copy = folder / "project" / "scripts" / "set_up.py"
    copy.parent.mkdir(parents=True)
    copy.write_text(SCRIPT.read_text())
    ran = subprocess.run(
        [sys.executable, str(copy)],
        env={**os.environ, "PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == ""
    assert sorted(path.name for path in (folder / "project").iterdir()) == ["scripts"], "nothing was made"
    return ran.returncode, ran.stderr.strip()


def java(folder: Path, says: str, status: int = 0) -> Path:
    """Put a program named java into a folder."""
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    program.chmod(0o755)
    return program


def test_a_machine_without_java_is_told_what_to_install(tmp_path: Path) -> None:
    assert set_up(tmp_path) == (1, f"There is no `java` on the PATH: {ADVICE}")


@pytest.mark.parametrize(
    ("says", "version"), [('java version "1.8.0_292"', 8), ('openjdk version "11.0.2" 2019-01-15', 11)]
)
def test_a_java_that_is_too_old_is_named(tmp_path: Path, says: str, version: int) -> None:
    program = java(tmp_path, says)
    assert set_up(tmp_path) == (1, f"`{program}` is Java {version}: {ADVICE}")


def test_a_java_that_does_not_run_is_named(tmp_path: Path) -> None:
    """As the stub of a system that offers to install one."""
    program = java(tmp_path, "The operation could not be completed. Unable to locate a Java Runtime.", 1)
    assert set_up(tmp_path) == (1, f"`{program} -version` does not answer as Java does: {ADVICE}")


@pytest.fixture
def script() -> ModuleType:
    spec = util.spec_from_file_location("set_up", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_java_that_is_new_enough_is_taken(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path, 'openjdk version "17.0.9" 2023-10-17')
    monkeypatch.setenv("PATH", str(tmp_path))
    script.check_java()


def test_a_python_that_is_too_old_is_told_by_its_version(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(sys, "version", "3.9.2 (default)")
    with pytest.raises(script.Lacking) as caught:
        script.check_python()
    assert str(caught.value) == (
        f"This is Python 3.9.2 ({sys.executable}); 3.11 or newer is needed. "
        "Install one, then: make PYTHON=/path/to/python3.12 ..."
    )


def test_a_python_that_is_too_old_can_read_the_script() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 7))
