"""Real streams from Kafka into a topic: drivers are killed, one is frozen and wakes, ids are counted at read_committed."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from exactlyonce.launch.last_message import Ending, parse_last_message
from exactlyonce.launch.local import Unresponsive
from exactlyonce.reconcile.loop import Done, Halted
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import only_in_full
from tests.kafka_readers import committed_records
from tests.kafka_sink_rig import KafkaSinkRig
from tests.rig import eventually, running, thaw

BATCH = 2_600
"""More records than a driver collects at once, so the rows come to it piece by piece."""


@pytest.fixture
def rig(kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str) -> KafkaSinkRig:
    return KafkaSinkRig(kafka, postgres_18, tmp_path, name, **{"spec.source.kafka.maxOffsetsPerTrigger": BATCH})


def killed_at(rig: KafkaSinkRig, *points: str) -> None:
    """Run the stream to its end, its drivers killed at these points, and require that a driver came to each."""
    rig.overrides["spec.recovery.maxFailuresPerBatch"] = 50
    result = rig.run(crash=" ".join(f"{point}=kill-driver" for point in points), seconds=60.0 + 90.0 * len(points))
    assert isinstance(result, Done), rig.story()
    missed = [point for place, point in enumerate(points) if not any(rig.folder.glob(f"fired-{place}-*"))]
    assert not missed, f"no driver came to {missed}\n{rig.story()}"


def test_drivers_killed_behind_the_decision_and_while_rows_are_made_again_put_each_id_into_the_topic_once(
    rig: KafkaSinkRig,
) -> None:
    """tests/integration/test_kafka_sink_transactions.py kills at every point, without Spark."""
    rig.produce(BATCH + 500, ts="2026-01-02T03:04:05.678901Z", customer=None)
    killed_at(rig, "batch.decided", "finish.written-again")
    rig.assert_exactly_once()
    assert "FinishCommit" in rig.verdicts(), rig.story()
    assert len(rig.rows("read_uncommitted")) > len(rig.rows()), (
        "what the killed drivers had sent is in the log, and counts not"
    )
    for record in committed_records(rig.kafka, rig.topic):
        value = json.loads(record.value(), parse_float=Decimal)
        number = value["id"]
        assert record.key() == str(number).encode(), "the key is the column's"
        assert [name for name, _ in record.headers()] == ["from"]
        assert value == {
            "id": number,
            "customer": None,
            "amount": Decimal(f"{number % 1000}.{number % 100:02d}"),
            "ts": "2026-01-02T03:04:05.678901Z",
        }


LARGE = 5_000
OF_BATCHES = {
    1: ["transaction.taken", "transaction.marked", "transaction.piece-sent"],
    2: ["batch.rows-written"],
    3: ["batch.source-checked", "land.fenced"],
    4: ["land.before-commit"],
    5: ["batch.decided", "finish.read", "finish.written-again", "finish.recorded", "finish.landed"],
    8: ["commit.answered"],
    9: ["batch.committed", "finish.read"],
    10: ["batch.landed"],
    12: ["batch.decided", "finish.landed"],
    14: ["transaction.piece-sent"],
    16: ["batch.committed"],
}


@only_in_full
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_ids_are_in_the_topic_once_after_twenty_kills(rig: KafkaSinkRig) -> None:
    """The test above makes the claim for fewer points."""
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = LARGE
    unnumbered = ("transaction.taken", "transaction.marked", "finish.aborted")
    points = [
        point if point in unnumbered else f"{point}@{batch}" for batch, points in OF_BATCHES.items() for point in points
    ]
    assert len(points) == 20
    rig.produce(100_000)
    killed_at(rig, *points)
    rig.assert_exactly_once()


@only_in_full
@pytest.mark.parametrize("point", ["batch.rows-written", "batch.decided"])
def test_a_driver_that_wakes_behind_its_successor_commits_nothing(rig: KafkaSinkRig, point: str) -> None:
    """tests/integration/test_kafka_sink_transactions.py has such zombies without Spark."""
    rig.produce(3 * BATCH)
    opened = rig.open()
    opened.launcher.unresponsive = Unresponsive.ABANDON
    opened.launcher.unresponsive_seconds = 4.0
    with running(rig, opened, crash=f"{point}@2=freeze"):
        eventually(rig.has_all, "the successor has landed every record", 120)
        thaw(opened, 1)
        words = opened.launcher.folder / "attempt-000001" / "last-words.json"
        eventually(words.exists, "the frozen driver has woken and ended")
    found = parse_last_message(words.read_text())
    assert found is not None
    assert found.ending == Ending.FENCED
    rig.assert_exactly_once()


@only_in_full
def test_a_topic_that_is_not_there_halts_the_stream_with_what_to_do(rig: KafkaSinkRig) -> None:
    """tests/integration/test_kafka_sink_refusals.py has the refusals without Spark."""
    rig.produce(10)
    result = rig.run(changes={"spec.sink.kafka.topic": "nowhere"})
    assert isinstance(result, Halted), rig.story()
    assert "Create the topic nowhere" in rig.story()
