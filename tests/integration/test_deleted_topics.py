"""A topic that a pattern matches is deleted under a running driver, and recreated, with a real broker and a real Spark."""

from __future__ import annotations

from collections import Counter

from tests.integration.test_changed_source import send
from tests.rig import Rig, eventually, running


def test_a_stream_goes_on_without_a_deleted_topic_and_reads_its_successor_from_the_first_record(rig: Rig) -> None:
    refunds = f"{rig.name}.refunds"
    rig.kafka.create_topic(refunds, 2)
    rig.overrides |= {
        "spec.source.kafka.topics": None,
        "spec.source.kafka.topicPattern": rf"{rig.name}(\.refunds)?",
        "spec.recovery.onTopicDeleted": "Forget",
    }
    send(rig, rig.name, range(20))
    send(rig, refunds, range(100, 120))
    with running(rig, rig.open()):
        eventually(lambda: rig.landed() >= 40, "both topics have landed", 120)
        rig.kafka.delete_topic(refunds)
        send(rig, rig.name, range(20, 40))
        eventually(lambda: rig.landed() >= 60, "the stream has continued without the topic", 120)
        rig.kafka.create_topic(refunds, 2)
        send(rig, refunds, range(200, 220))
        eventually(lambda: rig.landed() >= 80, "the topic of the same name has landed", 120)
    assert rig.counts() == Counter([*range(40), *range(100, 120), *range(200, 220)]), rig.story()
    told = [words for kind, words in rig.events if kind == "RebuildFromSink"]
    assert (
        f"Topic {refunds}, which the pattern matched, was deleted: records from {refunds}-0@10, {refunds}-1@10 on"
        in told[0]
    )
    assert f"Topic {refunds} was recreated and is read from its first record" in told[-1]
