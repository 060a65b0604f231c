"""The archive of classes makes a driver start sooner, and one that does not fit only makes it start as before."""

from __future__ import annotations

import pytest

from exactlyonce_spark import class_archive
from tests.rig import QUICK_JVM, Rig


def test_a_driver_starts_where_its_archive_is_something_else(rig: Rig) -> None:
    broken = rig.folder / "classes.jsa"
    broken.write_bytes(b"no archive" * 1000)
    rig.produce(40)
    rig.run(environment={class_archive.VARIABLE: str(broken)})
    rig.assert_exactly_once()


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
