"""Each verdict, reached for real: a real broker, a real database, a real Spark driver; outcomes counted by ids."""

from __future__ import annotations

import shutil

from exactlyonce.reconcile.loop import Done, Halted
from tests.rig import Rig


def test_first_start_then_resume_land_every_record_once_and_what_the_ledger_no_longer_keeps_goes(rig: Rig) -> None:
    rig.produce(1000)
    assert rig.run() == Done(completed=True)
    rig.assert_exactly_once()
    for days in (89, 91):
        rig.sql(
            "insert into exactlyonce.failures (stream_id, batch, topic, partition, from_offset, until_offset, status, brokers, "
            "error, changed_at) select stream_id, 0, 'x', 0, %s, 100, 'Closed', '', '', now() - interval '1 day' * %s "
            "from exactlyonce.streams",
            days,
            days,
        )
    rig.produce(500)
    assert rig.run() == Done(completed=True)
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "Resume"]
    assert rig.sql("select from_offset from exactlyonce.failures") == [(89,)]


def test_a_batch_that_was_planned_and_has_not_landed_is_replayed(rig: Rig) -> None:
    rig.produce(1000)
    rig.run(crash="batch.begun@1=kill-driver")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "ReplayBatch"]


def test_a_batch_that_landed_before_spark_knew_is_recognised(rig: Rig) -> None:
    rig.produce(1000)
    rig.run(crash="batch.landed@1=kill-driver")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "SkipLanded"]


def test_a_batch_that_landed_in_part_is_finished(rig: Rig) -> None:
    rig.overrides["spec.sink.postgres.commit"] = "Partition"
    rig.produce(4000)
    rig.run(crash="task.committed@1=kill-driver")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "FinishBatch"]


def test_a_lost_checkpoint_is_rebuilt_from_the_sink(rig: Rig) -> None:
    rig.produce(1000)
    rig.run()
    shutil.rmtree(rig.location)
    rig.produce(500)
    rig.run()
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "RebuildFromSink"]


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
    assert told in result.reason
    rig.run(changes={"spec.recovery.onSourceTruncated": "ResumeFromEarliest"})
    rig.assert_exactly_once(without=gone)
    assert set(kept) <= set(rig.counts())
    lost = rig.sql("select partition, from_offset, until_offset from exactlyonce.failures where status = 'Lost'")
    assert sorted(lost) == [(2, 100, 200), (3, 100, 110)], "the ledger says which records are gone"
    assert rig.verdicts() == ["FirstStart", "SourceTruncated", "SourceTruncated"]


def test_a_topic_that_was_made_anew_halts_the_stream(rig: Rig) -> None:
    rig.produce(400)
    rig.run()
    rig.kafka.delete_topic(rig.name)
    result = rig.run()
    assert isinstance(result, Halted)
    assert f"topic {rig.name} does not exist any more" in result.reason
    rig.kafka.create_topic(rig.name, 4)
    rig.produce(4000)
    result = rig.run()
    assert isinstance(result, Halted)
    assert "was made anew" in result.reason
    assert rig.landed() == 400, "nothing of the new topic was written"
    assert rig.verdicts() == ["FirstStart", "SourceReplaced", "SourceReplaced"]
