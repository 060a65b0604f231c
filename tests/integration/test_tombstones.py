"""Tombstones of a compacted topic with JSON: skipped, or the deletions that they are; counted by what the topic itself says."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from exactlyonce.reconcile.loop import Done
from tests.rig import Rig

LARGE = 2400
"""Records a batch that tasks write; the driver writes smaller ones itself."""

Change = tuple[int, str | None]

KEYS_OF_TOMBSTONES = (
    "SELECT coalesce(id, CAST(CAST(_key AS STRING) AS BIGINT)) AS id, customer, _deleted FROM source "
    "WHERE _deleted OR customer <> 'passed over'"
)


def changes(count: int, seed: int) -> list[Change]:
    """Changes of 300 keys; a third delete, some of them keys that were never there, and many keys change often."""
    chance = random.Random(seed)
    return [
        (chance.randrange(300), None if chance.random() < 0.35 else f"customer {number}") for number in range(count)
    ]


def send(rig: Rig, records: Sequence[Change]) -> None:
    """Produce each change under its key, to the partition of that key."""
    producer = Producer({"bootstrap.servers": rig.kafka.bootstrap_servers})
    for key, customer in records:
        value = None if customer is None else json.dumps({"id": key, "customer": customer}).encode()
        producer.produce(rig.name, value, key=str(key).encode(), partition=key % 4)
        producer.poll(0)
    assert producer.flush(30) == 0


def compact(rig: Rig) -> None:
    """Let the topic be one that is compacted, and soon: what is read may lack what was changed since."""
    wanted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, rig.name, incremental_configs=entries)
    admin = rig.kafka.admin()
    admin.incremental_alter_configs([resource])[resource].result(30)


def expected(records: Sequence[Change]) -> dict[int, str]:
    """What a reader of the whole topic ends with."""
    kept: dict[int, str] = {}
    for key, customer in records:
        if customer is None:
            kept.pop(key, None)
        else:
            kept[key] = customer
    return kept


def found(rig: Rig) -> dict[int, str]:
    rows = rig.sql("select id, customer from orders")
    assert len(rows) == len({key for key, _ in rows})
    return dict(rows)


def deleting(rig: Rig, commit: str) -> dict[str, object]:
    """A resource that deletes what tombstones delete."""
    sink = {**rig.document()["spec"]["sink"]["postgres"], "write": "Upsert", "keys": ["id"], "commit": commit}
    return {
        "spec.source.kafka.maxOffsetsPerTrigger": LARGE,
        "spec.source.format": {"schema": "id BIGINT NOT NULL, customer STRING", "onTombstone": "Delete"},
        "spec.transform": {"sql": KEYS_OF_TOMBSTONES},
        "spec.sink.postgres": sink,
    }


def test_tombstones_delete_in_staged_and_small_batches_and_in_a_transaction_a_partition_and_the_last_change_decides(
    rig: Rig,
) -> None:
    rig.sql("alter table orders add primary key (id)")
    compact(rig)
    first, second = changes(LARGE + 200, 1), changes(LARGE, 2)
    send(rig, first)
    crash = "batch.landed@1=kill-driver"
    assert rig.run(changes=deleting(rig, "Batch"), crash=crash) == Done(completed=True), rig.story()
    assert found(rig) == expected(first)
    assert "SkipLanded" in rig.verdicts(), "the batch that had landed deleted and wrote nothing again"

    send(rig, second)
    assert rig.run(changes=deleting(rig, "Partition")) == Done(completed=True), rig.story()
    assert found(rig) == expected([*first, *second])


def test_skipped_tombstones_yield_no_row_are_not_malformed_and_a_malformed_record_still_is(rig: Rig) -> None:
    rig.overrides["spec.source.format"] = {
        "schema": "id BIGINT NOT NULL, customer STRING",
        "onTombstone": "Skip",
        "onMalformed": "DeadLetter",
    }
    rig.overrides["spec.transform"] = {"sql": "SELECT id FROM source WHERE id >= 0"}
    send(rig, [(1, "one"), (2, None), (3, "three"), (1, None)])
    rig.send([(0, b"not json")])
    assert rig.run() == Done(completed=True), rig.story()
    assert set(rig.counts()) == {1, 3}
    assert rig.sql("select encode(value, 'escape') from exactlyonce.dead_letters") == [("not json",)]
    assert rig.sql("select records_read, dead_letters from exactlyonce.batches where status = 'Landed'") == [(5, 1)]
