"""The other deliveries, how a driver ends when it is asked to, and what no stream may be configured with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from exactlyonce.api.resource import ResourceInvalid
from exactlyonce.api.status import Phase
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.port import Ended, Running
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Done, Halted
from exactlyonce_spark.crash_points import LET_GO
from tests.combinations import in_full
from tests.rig import Rig, eventually, running

pytestmark = pytest.mark.seconds(10)

LARGE = 2400
"""Records a batch that tasks write."""

AVAILABLE_NOW = {"spec.trigger": {"availableNow": True}}


def batch_of(number: int) -> int:
    """The batch that an id is in: Spark's limit takes as many of each partition, and they are even."""
    return number // LARGE + 1


def test_at_least_once_doubles_at_most_the_batch_whose_positions_had_not_moved(rig: Rig) -> None:
    rig.overrides |= {"spec.delivery": "AtLeastOnce", "spec.source.kafka.maxOffsetsPerTrigger": LARGE}
    rig.produce(3 * LARGE)
    # Once its positions have moved, a batch is recognised as with ExactlyOnce: tests/faults/test_crash_points.py.
    crash, verdicts = in_full(
        ("batch.rows-written@2=kill-driver batch.landed@3=kill-driver", ["FirstStart", "ReplayBatch", "SkipLanded"]),
        otherwise=("batch.rows-written@2=kill-driver", ["FirstStart", "ReplayBatch"]),
    )
    assert rig.run(crash=crash) == Done(completed=True)
    assert rig.counts() == Counter({number: 2 if batch_of(number) == 2 else 1 for number in rig.produced}), (
        "the rows of batch 2 were written, and the crash came before its positions moved"
    )
    assert rig.verdicts() == verdicts


def test_at_most_once_loses_at_most_the_batch_in_hand_and_says_which(rig: Rig) -> None:
    """Batch 2 loses its driver while tasks write; of batch 3 Spark starts a task again whose rows are in already."""
    rig.overrides |= {"spec.delivery": "AtMostOnce", "spec.source.kafka.maxOffsetsPerTrigger": LARGE}
    rig.produce(4 * LARGE)
    opened = rig.open(AVAILABLE_NOW)
    let_spark_try_tasks_again(opened)
    crash = "task.before-commit@2=kill-driver task.committed@3=raise"
    assert rig.run(opened=opened, crash=crash) == Done(completed=True), rig.story()
    found = rig.counts()
    assert set(found.values()) == {1}, "nothing is doubled"
    lost = {number for number in rig.produced if number not in found}
    assert lost
    assert {batch_of(number) for number in lost} <= {2, 3}
    told = rig.sql("select batch, partition, from_offset, until_offset from exactlyonce.failures where status = 'Lost'")
    ends = {batch: (batch - 1) * LARGE // 4 for batch in (2, 3, 4)}
    assert sorted(told) == [(batch, part, ends[batch], ends[batch + 1]) for batch in (2, 3) for part in range(4)]
    said = [words for kind, words in rig.events if kind == "BatchFailed"]
    assert len(said) == 1
    assert "was started again" in said[0]
    assert "its rows are given up rather than written twice" in said[0]
    assert rig.verdicts() == ["FirstStart", "SkipLanded", "SkipLanded"]


def let_spark_try_tasks_again(opened: LocalStream) -> None:
    """Local mode tries a task once with AtMostOnce; an executor that is lost makes Spark try again, whatever is set."""
    once = "local[2,1]"
    assert opened.launcher.document.master == once
    opened.launcher.document = replace(opened.launcher.document, master="local[2,4]")


def test_sigterm_ends_the_driver_after_the_batch_in_hand_with_status_0(rig: Rig) -> None:
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = 40
    rig.overrides["spec.source.kafka.mirrorOffsets"] = {"group": rig.name}
    rig.produce(40 * 40)
    opened = rig.open()
    with running(rig, opened, crash="batch.rows-written@2=hold"):
        eventually(lambda: any(rig.folder.glob("fired-*")), "batch 2 is running", 120)
        opened.launcher.drain(Epoch(1))
        assert isinstance(opened.launcher.state_of(Epoch(1)), Running)
        assert rig.landed() == 40, "batch 2 has not landed yet"
        (held,) = rig.folder.glob("fired-*")
        Path(f"{held}{LET_GO}").touch()
        eventually(lambda: isinstance(opened.launcher.state_of(Epoch(1)), Ended), "the driver has ended", 120)
    assert ending_and_status(opened, 1) == (Ending.DRAINED, 0)
    landed = rig.counts()
    assert set(range(80)) <= set(landed), "batch 2 has landed"
    assert len(landed) < len(rig.produced), "it did not continue to the end"
    assert offsets_of_group(rig) == offsets_of_ids(rig), "what a driver has landed is shown once it has ended"
    opened = rig.open(AVAILABLE_NOW)
    assert rig.run(opened=opened) == Done(completed=True), rig.story()
    assert ending_and_status(opened, 2) == (Ending.COMPLETED, 0)
    assert opened.statuses.read()[0].phase is Phase.COMPLETED
    rig.assert_exactly_once()
    assert offsets_of_group(rig) == offsets_of_ids(rig), "as kafka-consumer-groups shows them"


COMMITTED = (30, 0, 44, 100)
"""Where a group stands in each partition of 100 records: at the start of one, and at the end of another."""


def test_a_stream_that_starts_from_a_consumer_group_lands_what_is_behind_its_offsets_once_and_nothing_before(
    rig: Rig,
) -> None:
    group = f"{rig.name}-billing"
    rig.overrides["spec.source.kafka.start"] = {"from": "ConsumerGroup", "group": group}
    rig.overrides |= {"spec.source.kafka.maxOffsetsPerTrigger": 120, "spec.recovery.maxFailuresPerBatch": 1}
    rig.produce(400)
    processed = processed_by_a_consumer(rig, group, COMMITTED)
    assert len(processed) == sum(COMMITTED)
    assert isinstance(rig.run(crash="land.before-commit@2=raise"), Halted), rig.story()
    assert 0 < rig.landed() <= 120, "one batch"
    # From here on the ledger says where the stream stands: a consumer that moves its group takes nothing from it.
    processed_by_a_consumer(rig, group, (100, 100, 100, 100))
    rig.produce(40)
    assert rig.run() == Done(completed=True), rig.story()
    rig.assert_exactly_once(without=processed)


def processed_by_a_consumer(rig: Rig, group: str, committed: Sequence[int]) -> list[int]:
    """Let a consumer read the topic and commit so many records of each partition; return the ids of these."""
    consumer = Consumer(
        {
            "bootstrap.servers": rig.kafka.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(rig.name, number, 0) for number in range(rig.partitions)])
    processed, left = [], len(rig.produced)
    while left:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        left -= 1
        if message.offset() < committed[message.partition()]:
            processed.append(json.loads(message.value())["id"])
    offsets = [TopicPartition(rig.name, number, offset) for number, offset in enumerate(committed)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    return processed


def offsets_of_group(rig: Rig) -> dict[int, int]:
    """What Kafka's own client reads of the group that shows where the stream has landed."""
    consumer = Consumer({"bootstrap.servers": rig.kafka.bootstrap_servers, "group.id": rig.name})
    partitions = [TopicPartition(rig.name, number) for number in range(rig.partitions)]
    found = {entry.partition: entry.offset for entry in consumer.committed(partitions, timeout=30)}
    consumer.close()
    return found


def offsets_of_ids(rig: Rig) -> dict[int, int]:
    """One past the offset of the last record whose id has landed, by partition, as the topic itself holds them."""
    consumer = Consumer({"bootstrap.servers": rig.kafka.bootstrap_servers, "group.id": f"{rig.name}-reads"})
    consumer.assign([TopicPartition(rig.name, number, 0) for number in range(rig.partitions)])
    found, landed, records = {}, rig.counts(), 0
    while records < len(rig.produced):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        records += 1
        if json.loads(message.value())["id"] in landed:
            found[message.partition()] = message.offset() + 1
    consumer.close()
    return found


def ending_and_status(opened: LocalStream, attempt: int) -> tuple[Ending | None, int | None]:
    """A driver's last message and the exit status of its process."""
    state = opened.launcher.state_of(Epoch(attempt))
    assert isinstance(state, Ended)
    child = opened.launcher._children[Epoch(attempt)]
    return None if state.words is None else state.words.ending, child.returncode


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("spark.speculation", "speculation runs a task twice at once"),
        (
            "spark.sql.streaming.asyncProgressTrackingEnabled",
            "asynchronous progress tracking writes the offset log after its batch",
        ),
        ("spark.sql.streaming.realTimeMode.enabled", "real-time mode writes the offset log after its batch"),
    ],
)
def test_what_breaks_the_promise_is_refused_by_name(rig: Rig, key: str, reason: str) -> None:
    with pytest.raises(ResourceInvalid) as refused:
        rig.stream({"spec.sparkConf": {key: "true"}})
    (problem,) = refused.value.problems
    assert f"sparkConf may not set {key}: {reason}" in problem


def test_a_driver_whose_spark_is_configured_against_the_promise_from_elsewhere_halts_the_stream(rig: Rig) -> None:
    """An image's spark-defaults.conf; speculation there is switched off, as the stream's own settings win."""
    conf = rig.folder / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("spark.speculation true\nspark.sql.streaming.realTimeMode.enabled true\n")
    rig.produce(40)
    result = rig.run(environment={"SPARK_CONF_DIR": str(conf)})
    assert isinstance(result, Halted)
    assert "spark.sql.streaming.realTimeMode.enabled=true, which no stream may have: real-time mode" in result.message
    assert rig.landed() == 0
