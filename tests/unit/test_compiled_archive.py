"""The archives that Spark gives to its Python workers: each module is compiled once, and stays the one that it was."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from exactlyonce_spark.compiled_archive import archives, compile_archive

SOURCES = {
    "package/__init__.py": "",
    "package/module.py": "def fail():\n    raise ValueError('told')\n",
    "package/of_another_python.py": "this is no Python\n",
    "package/data.txt": "kept",
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    made = tmp_path / "code.zip"
    with zipfile.ZipFile(made, "w") as target:
        for name, content in SOURCES.items():
            target.writestr(name, content)
    return made


def ran(archive: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(archive)}, capture_output=True, text=True, check=False
    )


def test_modules_are_read_compiled_and_their_errors_show_the_lines_of_their_sources(archive: Path) -> None:
    assert compile_archive(archive) == 2
    found = ran(archive, "import package.module as it; print(it.__file__); it.fail()")
    assert found.stdout.strip() == f"{archive}/package/module.pyc"
    assert f'File "{archive}/package/module.py", line 2, in fail' in found.stderr
    with zipfile.ZipFile(archive) as held:
        assert {name: held.read(name).decode() for name in SOURCES} == SOURCES
    assert [path.name for path in archive.parent.iterdir()] == [archive.name], "nothing is left beside it"


def test_what_is_compiled_already_is_left_alone(archive: Path) -> None:
    compile_archive(archive)
    before = archive.read_bytes()
    assert compile_archive(archive) == 0
    assert archive.read_bytes() == before


def test_an_archive_that_cannot_be_written_stays_as_it_was(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    before = archive.read_bytes()
    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="no space"):
        compile_archive(archive)
    assert archive.read_bytes() == before
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]


def test_the_archives_that_workers_read_are_those_of_the_installed_spark_and_make_setup_compiled_them() -> None:
    names = [path.name for path in archives()]
    assert "pyspark.zip" in names
    with zipfile.ZipFile(archives()[names.index("pyspark.zip")]) as held:
        assert "pyspark/daemon.pyc" in held.namelist(), "run `make setup`"
