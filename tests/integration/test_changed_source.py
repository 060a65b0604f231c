"""A resource that is changed between drivers, with a real broker, a real database and a real Spark; counted by ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from confluent_kafka import Producer

from exactlyonce.reconcile.loop import Done, Halted
from tests.combinations import in_full
from tests.rig import Rig
from tests.stateful_queries import WINDOWS, moment_of

TOPICS = "spec.source.kafka.topics"


def send(rig: Rig, topic: str, ids: Iterable[int], **fields: object) -> None:
    """Produce orders with these ids to a topic of two partitions."""
    producer = Producer({"bootstrap.servers": rig.kafka.bootstrap_servers})
    for number in ids:
        producer.produce(topic, json.dumps({"id": number, **fields}).encode(), partition=number % 2)
        producer.poll(0)
    assert producer.flush(30) == 0


def test_topics_are_added_left_out_and_added_again_and_every_record_of_what_is_read_lands_once(rig: Rig) -> None:
    refunds = f"{rig.name}.refunds"
    rig.kafka.create_topic(refunds, 2)
    send(rig, refunds, range(10_000, 10_040))
    rig.kafka.delete_records_before(refunds, 0, 5)
    rig.kafka.delete_records_before(refunds, 1, 3)
    held = [number for number in range(10_000, 10_040) if (number - 10_000) // 2 >= (5, 3)[number % 2]]
    orders = list(rig.produce(100))
    assert rig.run() == Done(completed=True), rig.story()

    rig.overrides[TOPICS] = [rig.name, refunds]
    assert rig.run() == Done(completed=True), rig.story()
    assert rig.counts() == Counter([*orders, *held]), "an added topic is read from the earliest record that it holds"

    rig.overrides[TOPICS] = [refunds]
    orders += rig.produce(100)
    send(rig, refunds, range(10_040, 10_060))
    held += range(10_040, 10_060)
    # A batch that has landed is recognised whatever is read: tests/faults/test_crash_points.py.
    assert rig.run(crash=in_full("batch.landed@5=kill-driver", otherwise=None)) == Done(completed=True), rig.story()
    assert rig.counts() == Counter([*orders[:100], *held]), "nothing of a topic that is left out"

    rig.overrides[TOPICS] = [refunds, rig.name]
    orders += rig.produce(100)
    edited = f"update exactlyonce.offsets set next_offset = %s where topic = '{rig.name}' and partition = 0"
    rig.sql(edited % 0)
    result = rig.run()
    assert isinstance(result, Halted), rig.story()
    assert (
        f"has position 0 for {rig.name}-0, and had position 25 when the stream left that partition out"
        in result.message
    )
    assert rig.counts() == Counter([*orders[:100], *held]), (
        "what stands in a row that somebody edited is not read again"
    )
    rig.sql(edited % 25)
    assert rig.run() == Done(completed=True), rig.story()
    assert rig.counts() == Counter([*orders, *held]), "what came meanwhile lands once the topic is named again"
    assert [kind for kind in rig.verdicts() if kind == "RebuildFromSink"] == ["RebuildFromSink"] * 3
    assert rig.verdicts()[0] == "FirstStart"
    told = " ".join(words for kind, words in rig.events if kind == "RebuildFromSink")
    assert f"it adds {refunds}-0@5, {refunds}-1@3" in told
    assert f"it leaves out {rig.name}-0@25" in told
    assert f"it takes back {rig.name}-0@25" in told
    assert len(rig.generations()) == 4


def test_another_schema_and_another_transform_go_on_in_the_same_generation_also_with_a_batch_that_was_planned(
    rig: Rig,
) -> None:
    rig.sql("alter table orders add column note text")
    rig.produce(100, note="before")
    rig.run()
    rig.produce(100, note="after")
    rig.overrides["spec.source.format"] = {"schema": "id BIGINT, note STRING"}
    rig.overrides["spec.transform"] = {"sql": "SELECT id, upper(note) AS note FROM source"}
    assert rig.run(crash="batch.begun@3=kill-driver") == Done(completed=True), rig.story()
    rig.assert_exactly_once()
    found = rig.sql("select note, count(*) from orders group by note")
    assert sorted(found, key=str) == [("AFTER", 100), (None, 100)]
    assert "RebuildFromSink" not in rig.verdicts()
    assert len(rig.generations()) == 1


def test_a_transform_that_begins_to_keep_state_halts_with_what_to_do(rig: Rig) -> None:
    rig.produce(40)
    rig.run()
    environment = WINDOWS.set_up(rig)
    rig.produce(40)
    result = rig.run(environment=environment)
    assert isinstance(result, Halted), rig.story()
    assert "keeps other state than the checkpoint holds" in result.message
    assert "make a stream with another streamId" in result.message


def test_a_query_with_state_is_refused_another_topic_and_another_transform_and_goes_on_when_they_are_taken_back(
    rig: Rig,
) -> None:
    environment = WINDOWS.set_up(rig)
    for number in range(0, 40, 4):
        rig.produce(4, ts=moment_of(number))
    rig.run(environment=environment)
    landed = rig.sql("select count(*) from totals")
    refunds = f"{rig.name}.refunds"
    rig.kafka.create_topic(refunds, 2)
    for changes in (
        {TOPICS: [rig.name, refunds]},
        {"spec.source.format": {"schema": "id BIGINT, ts TIMESTAMP"}},
    ):
        result = rig.run(environment=environment, changes=changes)
        assert isinstance(result, Halted), rig.story()
        assert "the query keeps state that was made without that change" in result.message
    assert rig.sql("select count(*) from totals") == landed
    assert rig.run(environment=environment) == Done(completed=True), rig.story()
