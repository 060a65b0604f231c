"""Spark's Python workers run in the driver's own Python, whatever the PATH says."""

from __future__ import annotations

import os

from tests.rig import Rig


def test_workers_do_not_depend_on_the_first_python_of_the_path(rig: Rig) -> None:
    other = rig.folder / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    path = os.pathsep.join([str(other.parent), os.environ["PATH"]])
    rig.produce(4000)
    rig.run(environment={"PATH": path})
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart"]
