"""A real stream from Kafka into a sink of two phases, whose drivers are killed at the points of both: ids are counted.

The sink is a toy in the memory of this process, put into a copy of the tree as a connector.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from exactlyonce_spark.crash_points import POINTS_OF_TWO_PHASES
from testbed.kafka import Kafka
from tests.combinations import only_in_full
from tests.rig import QUICK_JVM
from tests.toy_loads.outside.loads import Loads, served
from tests.tree_with_connector import ROOT, copy_with, run

TOY = ROOT / "tests" / "toy_loads"
BATCH = 2_600
"""More records than a driver loads by itself, so each task prepares a load."""
SECONDS = 900.0


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the toy in it."""
    copy = tmp_path_factory.mktemp("tree")
    copy_with(copy, "loads", TOY)
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


def run_killed(tree: Path, folder: Path, document: dict[str, Any], crashes: list[str]) -> str:
    """Run the stream to its end, killing a driver at each of these points, and return what it printed."""
    crash = " ".join(f"{point}=kill-driver,{folder / f'fired-{at}'}" for at, point in enumerate(crashes))
    told = run(tree, folder, document, crash, SECONDS)
    missed = [point for at, point in enumerate(crashes) if not (folder / f"fired-{at}").exists()]
    assert not missed, f"no driver came to {missed}: {told}"
    return told


def produce(kafka: Kafka, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    kafka.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, json.dumps({"id": number}).encode(), partition=number % 2)
        producer.poll(0)
    assert producer.flush(30) == 0, "the broker took every record"


POINTS = [
    "task.prepared@1",
    "batch.decided@1",
    *(point for point in POINTS_OF_TWO_PHASES if point.startswith("finish.")),
    "commit.answered@2",
    "batch.committed@3",
]


@only_in_full  # of Doris, the sink that is not a toy: tests/integration/test_doris_stream.py
def test_a_stream_of_loads_takes_effect_once_though_its_drivers_are_killed_at_the_points_of_both_phases(
    tree: Path, kafka: Kafka, tmp_path: Path, name: str
) -> None:
    records = 4 * BATCH + 500
    produce(kafka, name, records)
    # The first commit of the successor finds its load aborted; the answer to a later one is lost, and another driver asks.
    loads = Loads(aborts=frozenset({1}), silent=frozenset({5}))
    with served(loads) as server:
        told = run_killed(tree, tmp_path, resource(kafka, name, server, tmp_path), POINTS)

    found = Counter(json.loads(row)["c0"] for row in loads.rows())
    assert found == Counter(range(records)), told
    assert all(row["c1"] == 2 * row["c0"] for row in map(json.loads, loads.rows())), "rows made again are the query's"
    assert "FinishCommit" in told
    assert not loads.prepared(), "what nobody decided was aborted"
    aborted = [load for load in loads.loads if load.state == "aborted"]
    assert len(aborted) >= 2, "one by the sink, and what was written again and not recorded"
