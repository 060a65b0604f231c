"""A copy of the project with a connector of the tests in it, and `exactlyonce run` with the code of that copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from exactlyonce_spark.crash_points import VARIABLE

ROOT = Path(__file__).parents[1]
HALVES = {"operator/exactlyonce": "outside", "spark_apps/exactlyonce_spark": "inside"}
REGISTRY = Path("operator/exactlyonce/connectors/registry.py")


def copy_with(copy: Path, connector: str, folder: Path) -> None:
    """Copy the project, with the two halves of a connector in `folder` and its line in the registry."""
    for half, of_connector in HALVES.items():
        shutil.copytree(ROOT / half, copy / half)
        into = copy / half / "connectors" / connector
        shutil.copytree(folder / of_connector, into, ignore=shutil.ignore_patterns("__pycache__"))
    before, listed, after = (copy / REGISTRY).read_text().partition("CONNECTORS = (\n")
    assert listed, "the registry lists the connectors"
    (copy / REGISTRY).write_text(f'{before}{listed}    "{connector}",\n{after}')


def run(tree: Path, folder: Path, document: dict[str, Any], crash: str, seconds: float) -> str:
    """Run a stream to its end with the code of the tree, and return what it printed."""
    file = folder / "stream.yaml"
    file.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "exactlyonce.cli.main", "run", str(file)]
    command += ["--state", str(folder / "state"), "--secrets", str(folder / "secrets")]
    halves = os.pathsep.join(str((tree / half).parent) for half in HALVES)
    environment = {**os.environ, "PYTHONPATH": halves, VARIABLE: crash}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=seconds, check=False, cwd=folder
    )
    logs = [path.read_text(errors="replace")[-3000:] for path in sorted((folder / "state").glob("*/attempts/*/log"))]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *logs])
    return done.stdout
