"""Lag against an independent count: records that a consumer of the test reads, less rows that the test counts in Postgres."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from exactlyonce.assembly import ledger_address, source_address
from exactlyonce.launch.port import Running
from exactlyonce.launch.secrets import read_secret
from exactlyonce.monitor.collector import StreamCollector
from exactlyonce.monitor.monitor import Monitor
from exactlyonce.monitor.targets import StreamKey, target_of
from exactlyonce.positions.ranges import Epoch
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.rig import Rig, eventually, running


class Measured:
    """The monitor of one rig's stream, read as Prometheus reads it."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.monitor = Monitor()
        stream = rig.stream()
        secrets = partial(read_secret, rig.secrets)
        source, ledger = source_address(stream.spec.source, secrets), ledger_address(stream.spec, secrets)
        self.monitor.watch(target_of(stream, source, ledger))
        self._registry = CollectorRegistry()
        self._registry.register(StreamCollector(self.monitor, lambda: True, time.time))

    def round(self) -> Mapping[str, float]:
        """Measure once, and return each series by its name, partitions by name and number."""
        asyncio.run(self.monitor.round())
        text = generate_latest(self._registry).decode()
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                number = sample.labels.get("partition")
                found[sample.name.removeprefix("exactlyonce_") + ("" if number is None else f"/{number}")] = (
                    sample.value
                )
        return found


def not_landed(rig: Rig) -> dict[int, float]:
    """Each id that Kafka holds and the table does not, with its record's timestamp: read by a plain consumer."""
    consumer = Consumer({"bootstrap.servers": rig.kafka.bootstrap_servers, "group.id": f"{rig.name}-oracle"})
    parts = [TopicPartition(rig.name, number, OFFSET_BEGINNING) for number in range(rig.partitions)]
    consumer.assign(parts)
    ends = {part.partition: consumer.get_watermark_offsets(part, timeout=30)[1] for part in parts}
    held: dict[int, float] = {}
    left = sum(ends.values())
    while left:
        message = consumer.poll(30)
        assert message is not None, "the broker sends what it holds"
        assert message.error() is None
        left -= 1
        held[json.loads(message.value())["id"]] = message.timestamp()[1] / 1000
    consumer.close()
    landed = rig.counts()
    return {number: at for number, at in held.items() if not landed[number]}


def test_lag_is_what_an_independent_count_says_at_rest_under_load_and_with_the_driver_dead(rig: Rig) -> None:
    measured = Measured(rig)
    rig.produce(400)
    opened = rig.open()
    before = measured.round()
    assert "stream_lag_records" not in before, "the stream has not started: where it starts is not decided"
    assert (before["stream_source_up"], before["stream_ledger_up"]) == (1, 1)

    with running(rig, opened):
        eventually(rig.has_all, "the first orders have landed", 180)
        at_rest = measured.round()
        assert at_rest["stream_lag_records"] == len(not_landed(rig)) == 0
        assert "stream_oldest_not_landed_timestamp_seconds" not in at_rest
        landed_at = float(rig.sql("select extract(epoch from max(landed_at)) from exactlyonce.batches")[0][0])
        assert at_rest["stream_last_landed_timestamp_seconds"] == landed_at
        assert at_rest["stream_landed_batch"] == rig.landed_batch()

        for _ in range(5):
            rig.produce(200)
            # What waits only gets less between the two counts, while nothing is produced.
            first = len(not_landed(rig))
            loaded = measured.round()["stream_lag_records"]
            assert len(not_landed(rig)) <= loaded <= first
        eventually(rig.has_all, "all orders have landed", 180)
        at_rest = measured.round()
        assert at_rest["stream_lag_records"] == 0
        assert at_rest["stream_records_landed_total"] == 1000, "what has landed since the first look"
        assert at_rest["stream_rows_landed_total"] == 1000

        attempt = Epoch(opened.statuses.read()[0].attempt)
        assert isinstance(opened.launcher.state_of(attempt), Running)
    rig.kill_all(opened)

    rig.produce(77)
    waiting = not_landed(rig)
    dead = measured.round()
    assert dead["stream_lag_records"] == len(waiting) == 77
    assert dead["stream_oldest_not_landed_timestamp_seconds"] == min(waiting.values())
    assert sum(dead[f"partition_lag_records/{number}"] for number in range(rig.partitions)) == 77

    rig.produce(23)
    later = measured.round()
    assert later["stream_lag_records"] == len(not_landed(rig)) == 100
    assert later["stream_oldest_not_landed_timestamp_seconds"] == min(waiting.values()), "the oldest is the same"

    rig.run()
    rig.assert_exactly_once()
    caught_up = measured.round()
    assert caught_up["stream_lag_records"] == len(not_landed(rig)) == 0


def test_a_broker_or_a_database_that_is_down_leaves_the_lag_growing_and_is_told(
    servers: Path, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    with (
        Kafka(servers / f"{name}-kafka", settings={"offsets.topic.num.partitions": "1"}) as broker,
        Postgres(servers / f"{name}-postgres") as database,
    ):
        rig = Rig(broker, database, tmp_path, name)
        rig.produce(40)
        rig.run()
        rig.produce(7)
        measured = Measured(rig)
        before = measured.round()
        assert before["stream_lag_records"] == len(not_landed(rig)) == 7
        oldest = before["stream_oldest_not_landed_timestamp_seconds"]

        broker.stop()
        down = measured.round()
        assert (down["stream_source_up"], down["stream_ledger_up"]) == (0, 1)
        assert (down["stream_lag_records"], down["stream_oldest_not_landed_timestamp_seconds"]) == (7, oldest)
        assert down["stream_measured_timestamp_seconds"] == before["stream_measured_timestamp_seconds"]
        snapshot = measured.monitor.snapshot(StreamKey("tests", name))
        assert snapshot is not None
        assert snapshot.problem is not None
        assert broker.bootstrap_servers in snapshot.problem

        broker.start()
        database.stop()
        rig.produced += [47, 48]
        rig.send([(0, b'{"id": 47}'), (0, b'{"id": 48}')])
        dark = measured.round()
        assert (dark["stream_source_up"], dark["stream_ledger_up"]) == (1, 0)
        assert dark["stream_lag_records"] == 9, "the source continues, and nothing is known to have landed"
        assert dark["stream_oldest_not_landed_timestamp_seconds"] == oldest

        database.start()
        up = measured.round()
        assert (up["stream_source_up"], up["stream_ledger_up"]) == (1, 1)
        assert up["stream_lag_records"] == len(not_landed(rig)) == 9
        assert up["stream_oldest_not_landed_timestamp_seconds"] == oldest
