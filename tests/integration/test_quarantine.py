"""A poison record over real servers: the stream continues after its batch, and what it left out is told by range."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, TopicPartition

from exactlyonce.reconcile.loop import Done, Halted
from tests.combinations import in_full
from tests.rig import Rig

pytestmark = pytest.mark.seconds(40)

POISON = b'{"id": "not a number", "customer": "nobody"}'


def test_a_stream_goes_on_behind_a_poison_batch_whose_ranges_it_keeps_though_the_driver_that_does_so_is_killed(
    rig: Rig,
) -> None:
    rig.overrides |= {
        "spec.source.kafka.maxOffsetsPerTrigger": 40,
        "spec.recovery": {
            "backoff": {"initial": "0s", "max": "1s"},
            "maxFailuresPerBatch": 1,
            "onPoisonBatch": "Quarantine",
            "maxQuarantined": 40,
        },
    }
    rig.produce(60)
    rig.send([(2, POISON)])
    rig.produce(60)
    # In the simulation it is killed between every two statements: tests/simulation.
    crash, replays = in_full(
        ("quarantine.source-checked@2=kill-driver land.before-commit@2=kill-driver batch.landed@2=kill-driver", 3),
        otherwise=("land.before-commit@2=kill-driver", 2),
    )
    assert rig.run(crash=crash) == Done(completed=True), rig.story()

    found = rig.counts()
    assert set(found.values()) == {1}, "nothing is doubled"
    kept = rig.sql(
        "select partition, from_offset, until_offset, batch, error from exactlyonce.failures where status = 'Quarantined'"
    )
    (origin_id,) = set(rig.open().stores.source.view().origin_ids.values())
    told = rig.sql("select origin_id, life, fingerprint::json ->> 'offset', until_offset - 1 from exactlyonce.failures")
    assert {row[0] for row in told} == {origin_id}, "each range says of which topic it is"
    assert all(len(str(row[1])) == 16 and row[2] == str(row[3]) for row in told), "and what its last record was"
    left_out = [id_ for partition, start, end, *_ in kept for id_ in ids_between(rig, partition, start, end)]
    assert None in left_out, "the poison record is in one of the ranges"
    assert {number for number in left_out if number is not None} == set(rig.produced) - set(found)
    assert 0 < len(left_out) <= 40, "no more than one batch"
    assert {batch for *_, batch, _ in kept} == {2}
    assert all("Malformed record in topic" in error for *_, error in kept), "each range says what it failed with"
    assert rig.sql("select batch, status, rows_written from exactlyonce.batches where batch = 2") == [
        (2, "Quarantined", 0)
    ]
    assert rig.verdicts().count("ReplayBatch") == replays, rig.story()
    assert [kind for kind, _ in rig.events].count("BatchQuarantined") == 1

    rig.send([(1, POISON)])
    rig.produce(20)
    halted = rig.run()
    assert isinstance(halted, Halted), rig.story()
    assert "more than recovery.maxQuarantined (40)" in halted.message
    assert rig.counts() == found, "nothing lands behind a batch that may not be left out"


def ids_between(rig: Rig, partition: int, start: int, end: int) -> list[int | None]:
    """The ids of the records that the topic itself holds in a range; None of one without an id that is a number."""
    consumer = Consumer({"bootstrap.servers": rig.kafka.bootstrap_servers, "group.id": f"{rig.name}-reads"})
    consumer.assign([TopicPartition(rig.name, partition, start)])
    found: list[int | None] = []
    while len(found) < end - start:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        value = json.loads(message.value())["id"]
        found.append(value if isinstance(value, int) else None)
    consumer.close()
    return found
