"""Each verdict, reached for real: a real broker, a real database, a real Spark driver; outcomes counted by ids."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from exactlyonce.reconcile.loop import Done, Halted
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import in_full, only_in_full
from tests.rig import Rig

pytestmark = pytest.mark.seconds(12)


@dataclass(frozen=True)
class Life:
    """One stream that met what these verdicts are for, one after the other; the verdicts of each part of its life."""

    rig: Rig
    verdicts: Mapping[str, Sequence[str]]
    failures_left: Sequence[int]


@pytest.fixture(scope="module")
def life(kafka: Kafka, postgres_18: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Start a stream, continue with it, kill its drivers and take its checkpoint; every record is counted after each part."""
    rig = Rig(kafka, postgres_18, tmp_path_factory.mktemp("life"), "verdicts")
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = 500
    verdicts: dict[str, Sequence[str]] = {}

    def part(name: str, crash: str | None = None) -> None:
        before = len(rig.verdicts())
        rig.produce(1000)
        assert rig.run(crash=crash) == Done(completed=True), rig.story()
        rig.assert_exactly_once()
        verdicts[name] = rig.verdicts()[before:]

    part("first")
    for days in (89, 91):
        rig.sql(
            "insert into exactlyonce.failures (stream_id, batch, topic, partition, from_offset, until_offset, status, brokers, "
            "error, changed_at) select stream_id, 0, 'x', 0, %s, 100, 'Closed', '', '', now() - interval '1 day' * %s "
            "from exactlyonce.streams",
            days,
            days,
        )
    part("again, and killed", in_full("batch.begun@3=kill-driver batch.landed@4=kill-driver", otherwise=None))
    left = [found for (found,) in rig.sql("select from_offset from exactlyonce.failures where topic = 'x'")]
    shutil.rmtree(rig.location)
    part("without its checkpoint")
    return Life(rig, verdicts, left)


def test_a_stream_starts_and_goes_on_and_every_record_lands_once(life: Life) -> None:
    life.rig.assert_exactly_once()
    assert life.verdicts["first"] == ["FirstStart"]
    assert life.verdicts["again, and killed"][0] == "Resume"


def test_a_driver_removes_what_the_ledger_no_longer_keeps(life: Life) -> None:
    assert life.failures_left == [89]


# By default: tests/faults/test_crash_points.py, which kills at every point of a batch and counts these verdicts.
@only_in_full
def test_a_batch_that_was_planned_and_has_not_landed_is_replayed(life: Life) -> None:
    assert life.verdicts["again, and killed"][1] == "ReplayBatch", "batch 3"


# By default: as above.
@only_in_full
def test_a_batch_that_landed_before_spark_knew_is_recognised(life: Life) -> None:
    assert life.verdicts["again, and killed"][2:] == ["SkipLanded"], "batch 4"


def test_a_lost_checkpoint_is_rebuilt_from_the_sink(life: Life) -> None:
    assert life.verdicts["without its checkpoint"] == ["RebuildFromSink"]


# By default: test_writes.py (Upsert by partition), test_sources.py (a new partition) and tests/faults/test_crash_points.py.
@only_in_full
def test_a_batch_that_landed_in_part_is_finished(rig: Rig) -> None:
    rig.overrides["spec.sink.postgres.commit"] = "Partition"
    rig.produce(4000)
    rig.run(crash="task.committed@1=kill-driver")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "FinishBatch"]


def test_records_that_retention_took_halt_the_stream_until_the_user_accepts_their_loss(rig: Rig) -> None:
    rig.produce(400)
    rig.run()
    gone = [*rig.produce(100, partition=2), *rig.produce(10, partition=3)]
    kept = [*rig.produce(50, partition=2), *rig.produce(50, partition=3)]
    rig.kafka.delete_records_before(rig.name, 2, 100 + 100)
    rig.kafka.delete_records_before(rig.name, 3, 100 + 10)
    result = rig.run()
    assert isinstance(result, Halted)
    told = f"no longer holds 110 records that have not landed: {rig.name}-2 [100, 200), {rig.name}-3 [100, 110)"
    assert told in result.message
    rig.run(changes={"spec.recovery.onSourceTruncated": "ResumeFromEarliest"})
    rig.assert_exactly_once(without=gone)
    assert set(kept) <= set(rig.counts())
    lost = rig.sql("select partition, from_offset, until_offset from exactlyonce.failures where status = 'Lost'")
    assert sorted(lost) == [(2, 100, 200), (3, 100, 110)], "the ledger says which records are gone"
    assert rig.verdicts() == ["FirstStart", "SourceTruncated", "SourceTruncated"]


def test_a_topic_that_was_recreated_halts_the_stream(rig: Rig) -> None:
    rig.produce(400)
    rig.run()
    rig.kafka.delete_topic(rig.name)
    result = rig.run()
    assert isinstance(result, Halted)
    assert f"topic {rig.name} does not exist any more" in result.message
    rig.kafka.create_topic(rig.name, 4)
    rig.produce(4000)
    result = rig.run()
    assert isinstance(result, Halted)
    assert "was recreated" in result.message
    assert rig.landed() == 400, "nothing of the new topic was written"
    assert rig.verdicts() == ["FirstStart", "SourceReplaced", "SourceReplaced"]
