"""A connector made by following docs/connectors.md alone: its folders and one line in the registry, and nothing else.

It is put into a copy of the tree, whose `exactlyonce run` then reads a memory of this process and writes to it. A driver is
killed between the ledger's entry and what readers see, and the ids that they read are counted.
"""

from __future__ import annotations

import difflib
import filecmp
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import yaml

from exactlyonce_spark.crash_points import VARIABLE
from testbed.postgres import Postgres
from tests.rig import QUICK_JVM
from tests.toy_connector.outside.memory import Memory, served

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests" / "toy_connector"
HALVES = {"operator/exactlyonce": "outside", "spark_apps/exactlyonce_spark": "inside"}
REGISTRY = Path("operator/exactlyonce/connectors/registry.py")
LINE = '    "toy",\n'
SECONDS = 600.0


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the toy in it."""
    copy = tmp_path_factory.mktemp("tree")
    for half, folder in HALVES.items():
        shutil.copytree(ROOT / half, copy / half)
        shutil.copytree(TOY / folder, copy / half / "connectors" / "toy", ignore=shutil.ignore_patterns("__pycache__"))
    before, listed, after = (copy / REGISTRY).read_text().partition("CONNECTORS = (\n")
    assert listed, "the registry lists the connectors"
    (copy / REGISTRY).write_text(f"{before}{listed}{LINE}{after}")
    return copy


def resource(name: str, memory: str, folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "exactlyonce.dev/v1alpha1",
        "kind": "ExactlyOnceStream",
        "metadata": {"name": "toy", "namespace": "tests"},
        "spec": {
            "source": {"toy": {"server": memory, "batchRecords": 20}, "format": {"schema": "id BIGINT"}},
            "sink": {"toy": {"server": memory}},
            "ledger": {"postgres": {"secretRef": {"name": name}}},
            "checkpoint": {"local": {"path": str(folder / "checkpoint")}},
            "trigger": {"availableNow": True},
            "recovery": {"backoff": {"initial": "0s", "max": "1s"}, "maxFailuresPerBatch": 5},
            "sparkConf": {"spark.driver.extraJavaOptions": QUICK_JVM, "spark.sql.shuffle.partitions": "2"},
            "driver": {"cores": 2, "memory": "700Mi"},
        },
    }


def write_secret(server: Postgres, database: str, folder: Path) -> None:
    keys = {
        "host": server.host,
        "port": server.port,
        "dbname": database,
        "user": "postgres",
        "password": server.password,
    }
    folder.mkdir(parents=True)
    for key, value in keys.items():
        (folder / key).write_text(str(value))


def run(tree: Path, folder: Path, document: dict[str, Any], crash: str) -> str:
    """Run the stream to its end with the code of the tree, and return what it printed."""
    file = folder / "stream.yaml"
    file.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "exactlyonce.cli.main", "run", str(file)]
    command += ["--state", str(folder / "state"), "--secrets", str(folder / "secrets")]
    halves = os.pathsep.join(str((tree / half).parent) for half in HALVES)
    environment = {**os.environ, "PYTHONPATH": halves, VARIABLE: crash}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder
    )
    logs = [path.read_text(errors="replace")[-3000:] for path in sorted((folder / "state").glob("*/attempts/*/log"))]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *logs])
    return done.stdout


def test_a_stream_between_toys_lands_each_record_once_though_its_driver_is_killed(
    tree: Path, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    postgres_18.create_database(name)
    write_secret(postgres_18, name, tmp_path / "secrets" / "ledger")
    records = {key: [json.dumps({"id": 1000 * int(key) + number}) for number in range(30)] for key in ("0", "1")}
    memory = Memory(records)
    with served(memory) as server:
        document = resource("ledger", server, tmp_path)
        crash = f"batch.landed@2=kill-driver,{tmp_path / 'fired'}"
        told = run(tree, tmp_path, document, crash)

    found = Counter(json.loads(row)["id"] for row in memory.rows())
    assert found == Counter(json.loads(text)["id"] for texts in records.values() for text in texts), told
    assert "SkipLanded" in told, "the batch that was recorded and not shown was shown by the next driver"
    with psycopg2.connect(postgres_18.dsn(name)) as connection, connection.cursor() as cursor:
        cursor.execute("select count(*) from exactlyonce.committables")
        assert cursor.fetchall() == [(len(memory.shown),)], "readers read what the ledger names"


def test_nothing_but_its_folders_and_one_line_is_in_the_tree_that_ran(tree: Path) -> None:
    added, changed = [], []
    for half in HALVES:
        for path in sorted((tree / half).rglob("*")):
            place = path.relative_to(tree)
            if path.is_dir() or "__pycache__" in place.parts:
                continue
            if not (ROOT / place).exists():
                added.append(place)
            elif not filecmp.cmp(path, ROOT / place, shallow=False):
                changed.append(place)

    assert {place.parent for place in added} == {Path(half, "connectors", "toy") for half in HALVES}
    assert changed == [REGISTRY]
    before, after = ((root / REGISTRY).read_text().splitlines(keepends=True) for root in (ROOT, tree))
    assert [line for line in difflib.ndiff(before, after) if line[0] in "+-"] == [f"+ {LINE}"]
