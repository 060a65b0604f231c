"""`exactlyonce offsets` on states made without Spark: the numbers that the test made, as a table and as JSON."""

from __future__ import annotations

import json
from typing import Any

from tests.offline import Everything, OfflineStream, command
from tests.rig import Rig, eventually

OFFSETS = ["topic", "partition", "planned", "checkpointed", "landed", "earliest", "latest", "lag"]


def offsets(rig: Rig, **changes: Any) -> list[tuple[Any, ...]]:
    """The rows of `exactlyonce offsets`, from the table and from the JSON, which have to be the same."""
    before = Everything.of(rig)
    printed, as_data = command(rig, "offsets", changes=changes), command(rig, "offsets", "-o", "json", changes=changes)
    assert (printed.exit_code, as_data.exit_code) == (0, 0), printed.output
    assert Everything.of(rig) == before
    rows = [tuple(row[name] for name in OFFSETS) for row in json.loads(as_data.stdout)]
    header, *lines = [line.split() for line in printed.stdout.splitlines()]
    assert header == OFFSETS
    assert lines == [["-" if value is None else str(value) for value in row] for row in rows]
    return rows


def test_offsets_of_a_stream_that_never_ran_are_those_of_its_source(rig: Rig) -> None:
    rig.produce(6, partition=1)
    rig.kafka.delete_records_before(rig.name, 1, 2)
    topic = rig.name
    assert offsets(rig) == [
        (topic, 0, None, None, None, 0, 0, None),
        (topic, 1, None, None, None, 2, 6, None),
        (topic, 2, None, None, None, 0, 0, None),
        (topic, 3, None, None, None, 0, 0, None),
    ]


def test_offsets_show_both_logs_the_sink_and_the_source_partition_by_partition(rig: Rig) -> None:
    rig.produce(48)
    stream = OfflineStream(rig)
    stream.run(1, 5, 4, 3, 2)
    topic = rig.name
    assert offsets(rig) == [
        (topic, 0, 5, 5, 5, 0, 12, 7),
        (topic, 1, 4, 4, 4, 0, 12, 8),
        (topic, 2, 3, 3, 3, 0, 12, 9),
        (topic, 3, 2, 2, 2, 0, 12, 10),
    ]
    stream.plan(2, 9, 8, 7, 2)
    rig.kafka.delete_records_before(topic, 1, 3)
    assert offsets(rig) == [
        (topic, 0, 9, 5, 5, 0, 12, 7),
        (topic, 1, 8, 4, 4, 3, 12, 8),
        (topic, 2, 7, 3, 3, 0, 12, 9),
        (topic, 3, 2, 2, 2, 0, 12, 10),
    ]
    stream.land(2, 9, 8, 7, 2)
    rig.produce(1, partition=3)
    assert offsets(rig) == [
        (topic, 0, 9, 5, 9, 0, 12, 3),
        (topic, 1, 8, 4, 8, 3, 12, 4),
        (topic, 2, 7, 3, 7, 0, 12, 5),
        (topic, 3, 2, 2, 2, 0, 13, 11),
    ]


def test_offsets_show_partitions_that_are_new_and_ones_that_are_gone(rig: Rig) -> None:
    rig.produce(48)
    stream = OfflineStream(rig)
    stream.run(1, 5, 5, 5, 5)
    stream.release()
    rig.kafka.add_partitions(rig.name, 5)
    topic = rig.name
    eventually(lambda: len(offsets(rig)) == 5, "the new partition is seen")
    assert offsets(rig)[4] == (topic, 4, None, None, None, 0, 0, None)
    rig.kafka.delete_topic(topic)
    eventually(lambda: len(offsets(rig)) == 4, "the topic is gone")
    assert offsets(rig) == [(topic, number, 5, 5, 5, None, None, None) for number in range(4)], (
        "what landed stays known"
    )
