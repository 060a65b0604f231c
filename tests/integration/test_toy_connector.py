"""A connector made by following docs/connectors.md alone: its folders and one line in the registry, and nothing else.

It is put into a copy of the tree, whose `exactlyonce run` then reads a memory of this process and writes to it. A driver is
killed between the ledger's entry and what readers see, and the ids that they read are counted.
"""

from __future__ import annotations

import difflib
import filecmp
import json
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from testbed.postgres import Postgres
from tests.rig import QUICK_JVM
from tests.toy_connector.outside.memory import Memory, served
from tests.tree_with_connector import HALVES, REGISTRY, ROOT, copy_with, run

TOY = ROOT / "tests" / "toy_connector"
SECONDS = 600.0


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the toy in it."""
    copy = tmp_path_factory.mktemp("tree")
    copy_with(copy, "toy", TOY)
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
        told = run(tree, tmp_path, document, crash, SECONDS)

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
    assert [line for line in difflib.ndiff(before, after) if line[0] in "+-"] == ['+     "toy",\n']
