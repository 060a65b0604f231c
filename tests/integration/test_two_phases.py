"""A real stream from Kafka into a sink of two phases, whose drivers are killed at the points of both: ids are counted.

The sink is a toy in the memory of this process, put into a copy of the tree as a connector.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from exactlyonce_spark.crash_points import POINTS_OF_TWO_PHASES, VARIABLE
from testbed.kafka import Kafka
from tests.combinations import EVERY_MODE
from tests.rig import QUICK_JVM
from tests.toy_loads.outside.loads import Loads, served

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests" / "toy_loads"
HALVES = {"operator/exactlyonce": "outside", "spark_apps/exactlyonce_spark": "inside"}
REGISTRY = Path("operator/exactlyonce/connectors/registry.py")
BATCH = 2_600
"""More records than a driver loads by itself, so each task prepares a load."""
SECONDS = 900.0


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the toy in it."""
    copy = tmp_path_factory.mktemp("tree")
    for half, folder in HALVES.items():
        shutil.copytree(ROOT / half, copy / half)
        into = copy / half / "connectors" / "loads"
        shutil.copytree(TOY / folder, into, ignore=shutil.ignore_patterns("__pycache__"))
    before, listed, after = (copy / REGISTRY).read_text().partition("CONNECTORS = (\n")
    assert listed, "the registry lists the connectors"
    (copy / REGISTRY).write_text(f'{before}{listed}    "loads",\n{after}')
    return copy


def resource(kafka: Kafka, topic: str, server: str, folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "exactlyonce.dev/v1alpha1",
        "kind": "ExactlyOnceStream",
        "metadata": {"name": "loads", "namespace": "tests"},
        "spec": {
            "source": {
                "kafka": {
                    "bootstrapServers": kafka.bootstrap_servers,
                    "topics": [topic],
                    "maxOffsetsPerTrigger": BATCH,
                },
                "format": {"schema": "id BIGINT"},
            },
            "transform": {"sql": "select id, id * 2 as twice from source"},
            "sink": {"loads": {"server": server}},
            "checkpoint": {"local": {"path": str(folder / "checkpoint")}},
            "trigger": {"availableNow": True},
            "recovery": {"backoff": {"initial": "0s", "max": "1s"}, "maxFailuresPerBatch": 5},
            "sparkConf": {"spark.driver.extraJavaOptions": QUICK_JVM, "spark.sql.shuffle.partitions": "2"},
            "driver": {"cores": 2, "memory": "700Mi"},
        },
    }


def run(tree: Path, folder: Path, document: dict[str, Any], crashes: list[str]) -> str:
    """Run the stream to its end with the code of the tree, and return what it printed."""
    file = folder / "stream.yaml"
    file.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "exactlyonce.cli.main", "run", str(file)]
    command += ["--state", str(folder / "state"), "--secrets", str(folder / "secrets")]
    halves = os.pathsep.join(str((tree / half).parent) for half in HALVES)
    crash = " ".join(f"{point}=kill-driver,{folder / f'fired-{at}'}" for at, point in enumerate(crashes))
    environment = {**os.environ, "PYTHONPATH": halves, VARIABLE: crash}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder
    )
    logs = [path.read_text(errors="replace")[-3000:] for path in sorted((folder / "state").glob("*/attempts/*/log"))]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *logs])
    missed = [point for at, point in enumerate(crashes) if not (folder / f"fired-{at}").exists()]
    assert not missed, f"no driver came to {missed}: {done.stdout}"
    return done.stdout


def produce(kafka: Kafka, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    kafka.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, json.dumps({"id": number}).encode(), partition=number % 2)
        producer.poll(0)
    assert producer.flush(30) == 0, "the broker took every record"


QUICK = ["batch.decided@1", "finish.written-again"]
"""The first driver is killed behind the decision. The sink has aborted one of its loads by then, so its successor writes that
again, and is killed before the ledger knows of it."""

EVERY = [
    "task.prepared@1",
    "batch.decided@1",
    *(f"{point}" for point in POINTS_OF_TWO_PHASES if point.startswith("finish.")),
    "commit.answered@2",
    "batch.committed@3",
]


def test_a_stream_of_loads_takes_effect_once_though_its_drivers_are_killed_at_the_points_of_both_phases(
    tree: Path, kafka: Kafka, tmp_path: Path, name: str
) -> None:
    records = 4 * BATCH + 500 if EVERY_MODE else BATCH + 500
    produce(kafka, name, records)
    # The first commit of the successor finds its load aborted; the answer to a later one is lost, and another driver asks.
    loads = Loads(aborts=frozenset({1}), silent=frozenset({5}))
    with served(loads) as server:
        told = run(tree, tmp_path, resource(kafka, name, server, tmp_path), EVERY if EVERY_MODE else QUICK)

    found = Counter(json.loads(row)["c0"] for row in loads.rows())
    assert found == Counter(range(records)), told
    assert all(row["c1"] == 2 * row["c0"] for row in map(json.loads, loads.rows())), "rows made again are the query's"
    assert "FinishCommit" in told
    assert not loads.prepared(), "what nobody decided was aborted"
    aborted = [load for load in loads.loads if load.state == "aborted"]
    assert len(aborted) >= 2, "one by the sink, and what was written again and not recorded"
