"""A failover takes from the ledger what Kafka has committed: the stream halts, and a person's word lets it continue."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Done, Halted
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import only_in_full
from tests.kafka_sink_rig import KafkaSinkRig
from tests.lost_commits import Standby
from tests.rig import eventually, running

BEHIND = "land.before-commit@2"
"""The transaction that decides batch 2 has not committed: what a standby has that lags by it."""

COMMITTED = "commit.answered@2"
"""Kafka has committed batch 2."""


@pytest.fixture
def rig(kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str) -> KafkaSinkRig:
    changes = {
        "spec.source.kafka.maxOffsetsPerTrigger": 100,
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
    }
    return KafkaSinkRig(kafka, postgres_18, tmp_path, name, **changes)


def fail_over_behind_a_commit(rig: KafkaSinkRig) -> None:
    """Land a batch; then lose the decision of the next one, which Kafka has committed, with the driver."""
    rig.produce(100)
    assert isinstance(rig.run(), Done), rig.story()
    rig.produce(100)
    opened = rig.open()

    def held_at(place: int) -> Path | None:
        return next((file for file in rig.folder.glob(f"fired-{place}-*") if file.suffix != ".let-go"), None)

    with running(rig, opened, crash=f"{BEHIND}=hold {COMMITTED}=hold"):
        eventually(lambda: held_at(0) is not None, "batch 2 is about to be decided")
        standby = Standby.of(rig)
        Path(f"{held_at(0)}.let-go").touch()
        eventually(lambda: held_at(1) is not None, "Kafka has committed batch 2")
        attempt = Epoch(opened.statuses.read()[0].attempt)
        standby.promote()
        opened.launcher.kill(attempt)
        eventually(lambda: any(kind == "Refused" for kind, _ in rig.events), "the next driver has looked")
    assert rig.landed() == 200


def halted(rig: KafkaSinkRig, **changes: object) -> str:
    """Run the stream, require that it halts, and return what it says."""
    result = rig.run(changes=changes)
    assert isinstance(result, Halted), rig.story()
    return result.message


def label_in(message: str) -> str:
    """Return the label of the load that a stream has halted over."""
    return message.partition(" under ")[2].split()[0]


def test_a_batch_that_kafka_has_and_a_failover_took_from_the_ledger_is_not_landed_again(rig: KafkaSinkRig) -> None:
    fail_over_behind_a_commit(rig)
    # Another limit has the batch planned again, behind an empty seed whose number is greater than that of the batch.
    for changes in ({}, {"spec.source.kafka.maxOffsetsPerTrigger": 60}):
        message = halted(rig, **changes)
        assert "has committed batch 2 of this stream" in message
        assert all(f"{rig.name}-{key} [50, 100)" in message for key in (0, 1)), "it names the records that are in doubt"
        assert rig.landed() == 200, rig.story()
    answer = f"{label_in(message)}=Committed by=jane"
    rig.produce(100)
    result = rig.run(changes={"metadata.annotations": {SETTLE_LOADS: answer}})
    assert isinstance(result, Done), rig.story()
    rig.assert_exactly_once()
    (row,) = rig.sql("select status, ranges, note from exactlyonce.batches where batch = 2")
    assert row[:2] == ("Landed", {rig.name: {"0": [50, 100], "1": [50, 100]}})
    assert "as jane says" in row[2]
    assert rig.sql("select count(*) from exactlyonce.failures") == [(0,)]


@only_in_full
def test_a_batch_of_which_a_person_has_found_no_row_is_read_again(rig: KafkaSinkRig) -> None:
    """tests/unit/test_known_loads.py has the answers without Spark."""
    fail_over_behind_a_commit(rig)
    answer = f"{label_in(halted(rig))}=Aborted"
    assert isinstance(rig.run(changes={"metadata.annotations": {SETTLE_LOADS: answer}}), Done), rig.story()
    counts = rig.counts()
    assert {number: counts[number] for number in (0, 99, 100, 199)} == {0: 1, 99: 1, 100: 2, 199: 2}, (
        "the rows were there, whatever that person has said"
    )
