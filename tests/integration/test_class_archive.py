"""What a driver's processes are started with: an archive of classes, which only makes it start sooner, and its own Python."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exactlyonce_spark import class_archive
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.rig import QUICK_JVM, Rig


@pytest.fixture(scope="module")
def odd_place(kafka: Kafka, postgres_18: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """A stream whose drivers find a file that is not an archive, and first on the PATH a python3 that fails."""
    rig = Rig(kafka, postgres_18, tmp_path_factory.mktemp("odd"), "oddplace", cold=True)
    broken = rig.folder / "classes.jsa"
    broken.write_bytes(b"no archive" * 1000)
    other = rig.folder / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    rig.produce(4000)
    path = os.pathsep.join([str(other.parent), os.environ["PATH"]])
    rig.run(environment={class_archive.VARIABLE: str(broken), "PATH": path})
    return rig


def test_a_driver_starts_where_its_archive_is_something_else(odd_place: Rig) -> None:
    odd_place.assert_exactly_once()


def test_workers_do_not_depend_on_the_first_python_of_the_path(odd_place: Rig) -> None:
    """Spark's Python workers run in the driver's own Python."""
    odd_place.assert_exactly_once()
    assert odd_place.verdicts() == ["FirstStart"]


def test_jars_that_were_reinstalled_have_an_archive_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM does without one whose jars have another time: an environment recreated would start slowly for ever."""
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
    rig.cold = True
    rig.produce(40)
    rig.run()
    rig.assert_exactly_once()
    lines = loaded.read_text().splitlines()
    taken = [line for line in lines if "source: shared objects file (top)" in line]
    assert len(taken) > len(lines) / 3, f"{len(taken)} of {len(lines)} classes"
