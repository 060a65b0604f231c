"""Spark's reader of Kinesis over a stand-in of Kinesis: what a batch held, it holds again; nothing shows the login."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from exactlyonce.connectors.kinesis.positions import SHARD_END
from exactlyonce.launch.secrets import SECRETS_FOLDER
from exactlyonce_spark import class_archive
from exactlyonce_spark.jars import ensure_jars
from testbed.kinesis import Kinesis
from tests.combinations import only_in_full
from tests.kinesis_checkpoint import seed
from tests.kinesis_in_memory import aggregated
from tests.rig import QUICK_JVM

ROOT = Path(__file__).parents[2]
STREAM, REGION, SHARDS = "orders", "us-east-1", 4
SECRET = "a-secret-key-that-nobody-may-see"
SECONDS = 300.0


def shard(number: int) -> str:
    return f"shardId-{number:012}"


class Producer:
    """Puts user records with new ids, every fourth record an aggregate of five of them."""

    def __init__(self, server: Kinesis) -> None:
        self._server = server
        self.put: list[str] = []

    def produce(self, records: int) -> None:
        sent = []
        for number in range(records):
            ids = [str(len(self.put) + more) for more in range(5 if number % 4 == 0 else 1)]
            sent.append((ids[0], aggregated(ids) if len(ids) > 1 else ids[0].encode()))
            self.put += ids
        self._server.put(STREAM, *sent)

    def damage(self) -> None:
        self._server.put(STREAM, ("damaged", aggregated(["swallowed", "by others"])[:-1] + b"?"))


def run(folder: Path, endpoint: str, killed_in: int | None) -> subprocess.CompletedProcess[str]:
    (folder / "events").mkdir(exist_ok=True)
    orders = {
        "source": {
            "streamName": STREAM,
            "region": REGION,
            "endpoint": endpoint,
            "secretRef": {"name": "login"},
            "maxRecordsPerTrigger": 60,
        },
        "settings": {
            "spark.driver.extraClassPath": f"{ensure_jars()}/*",  # with which the archive of classes fits
            "spark.driver.extraJavaOptions": f"{class_archive.java_options()} {QUICK_JVM}".strip(),
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(folder / "events"),
        },
        "checkpoint": str(folder / "checkpoint"),
        "out": str(folder / "batches"),
        "killed_in": killed_in,
    }
    return subprocess.run(
        [sys.executable, "-m", "tests.kinesis_query", json.dumps(orders)],
        cwd=ROOT,
        env={
            **os.environ,
            SECRETS_FOLDER: str(folder / "secrets"),
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LAUNCHER_OPTS": class_archive.LAUNCHER_OPTIONS,
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@only_in_full  # as a stream: test_kinesis_stream.py; the rows of a replay: tests/unit/test_kinesis_records.py
def test_a_query_that_is_killed_reads_its_batch_again_alike_and_every_id_once_through_splits_and_merges(
    tmp_path: Path,
) -> None:
    with Kinesis(tmp_path / "stand-in") as server:
        secret = tmp_path / "secrets" / "login"
        secret.mkdir(parents=True)
        (secret / "AWS_ACCESS_KEY_ID").write_text("testing")
        (secret / "AWS_SECRET_ACCESS_KEY").write_text(SECRET)
        server.create_stream(STREAM, SHARDS)
        producer = Producer(server)
        producer.produce(120)
        producer.damage()
        seed(tmp_path / "checkpoint", STREAM, map(shard, range(SHARDS)))

        killed = run(tmp_path, server.endpoint, killed_in=3)
        assert killed.returncode == -9, killed.stderr[-3000:]
        server.split(STREAM, shard(0))
        server.merge(STREAM, shard(2), shard(3))
        producer.produce(60)
        done = run(tmp_path, server.endpoint, killed_in=None)
        assert done.returncode == 0, done.stderr[-3000:]

    lines = [json.loads(line) for line in (tmp_path / "batches").read_text().splitlines()]
    first, again = (line for line in lines if line["batch"] == 3)
    assert first == again, "the batch that was killed held the same rows in the same order, read by its tasks"
    batches = {line["batch"]: line for line in lines}
    assert sorted(batches) == list(range(1, len(batches) + 1))
    found = Counter(row[-1] for line in batches.values() for row in line["rows"])
    assert found == Counter(producer.put)
    assert all(len(line["rows"]) <= 60 for line in batches.values())

    letters = [letter for line in batches.values() for letter in line["malformed"]]
    assert [why for _, _, why in letters] == [
        "a KPL aggregate is malformed: its MD5 is not that of its content, so it was changed or cut"
    ]

    ends = batches[len(batches)]["ranges"][STREAM]
    assert {key for key, (_, until) in ends.items() if until == SHARD_END} == {shard(0), shard(2), shard(3)}
    assert set(ends) == {shard(number) for number in range(7)}

    shown = [killed.stdout, killed.stderr, done.stdout, done.stderr]
    shown += [path.read_text(errors="replace") for path in (tmp_path / "events").rglob("*") if path.is_file()]
    assert "exactlyonce_kinesis" in "".join(shown), "the source is named where the plan is shown"
    assert not any(SECRET in text for text in shown), "the login is in no plan, log or event"
