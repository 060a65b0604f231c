"""The archive of classes makes a driver start sooner, and one that does not fit only makes it start as before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exactlyonce_spark import class_archive
from tests.rig import QUICK_JVM, Rig


def test_a_driver_starts_where_its_archive_is_something_else(rig: Rig) -> None:
    broken = rig.folder / "classes.jsa"
    broken.write_bytes(b"no archive" * 1000)
    rig.produce(40)
    rig.run(environment={class_archive.VARIABLE: str(broken)})
    rig.assert_exactly_once()


def test_jars_that_were_installed_anew_have_an_archive_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM does without one whose jars have another time: an environment made anew would start slowly for ever."""
    monkeypatch.delenv(class_archive.VARIABLE, raising=False)
    monkeypatch.setattr(class_archive, "ensure_jars", lambda: tmp_path)
    jar = tmp_path / "connector.jar"
    jar.write_bytes(b"a jar")
    before = class_archive.archive_path()
    assert class_archive.archive_path() == before
    os.utime(jar, ns=(1, 1))
    assert class_archive.archive_path() != before


def test_archives_of_environments_that_are_gone_do_not_pile_up(tmp_path: Path) -> None:
    for number in range(9):
        archive = tmp_path / f"driver-{number}.jsa"
        archive.write_bytes(b"")
        os.utime(archive, ns=(number, number))
    class_archive._prune(tmp_path)
    assert sorted(archive.name for archive in tmp_path.iterdir()) == [f"driver-{it}.jsa" for it in range(5, 9)]


def test_a_driver_takes_its_classes_from_the_archive(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(class_archive.VARIABLE, raising=False)
    archive = class_archive.make_archive()
    assert class_archive.make_archive() == archive, "it is made once"
    loaded = rig.folder / "classes.log"
    rig.overrides["spec.sparkConf"] = {
        "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Xlog:class+load=info:file={loaded}"
    }
    rig.produce(40)
    rig.run()
    rig.assert_exactly_once()
    lines = loaded.read_text().splitlines()
    taken = [line for line in lines if "source: shared objects file (top)" in line]
    assert len(taken) > len(lines) / 3, f"{len(taken)} of {len(lines)} classes"
