"""A query that keeps state in its checkpoint: what it emits counts once, and its state is never lost without a word."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Done, Halted
from tests.combinations import in_full, only_in_full
from tests.rig import Rig, eventually, running

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
A_MINUTE, BATCH = 10, 100
"""Records of one minute, and of one batch."""

WINDOWS = """
from pyspark.sql import functions

def totals(rows):
    minutes = rows.withWatermark("ts", "0 seconds").groupBy(functions.window("ts", "1 minute"))
    totals = minutes.agg(functions.count("*").alias("orders"), functions.sum("id").alias("total"))
    return totals.selectExpr("window.start as minute", "orders", "total")
"""

LATE_MINUTES = 10
TWO_WATERMARKS = WINDOWS.replace(
    'rows.withWatermark("ts", "0 seconds")',
    f'rows.withColumn("late", functions.expr("ts - interval {LATE_MINUTES} minutes"))'
    '.withWatermark("late", "0 seconds").withWatermark("ts", "0 seconds")',
)
"""Spark groups by the column of the last watermark alone."""


def test_an_aggregation_counts_every_record_once_through_kills_and_halts_without_its_checkpoint(rig: Rig) -> None:
    environment = counting_minutes(rig)
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = BATCH
    for number in range(0, 3 * BATCH, 4):
        rig.produce(4, ts=moment_of(number))
    # A batch of a query with state that has landed before Spark knew: test_output_modes.py.
    crash, verdicts = in_full(
        ("batch.rows-written@2=kill-driver batch.landed@4=kill-driver", ["FirstStart", "ReplayBatch", "SkipLanded"]),
        otherwise=("batch.rows-written@2=kill-driver", ["FirstStart", "ReplayBatch"]),
    )
    assert rig.run(crash=crash, environment=environment) == Done(completed=True), rig.story()
    assert rig.verdicts() == verdicts
    assert rig.landed_batch() == 4, "after three batches of records one without, for the rows whose time had come"
    assert_minutes_once(rig, minutes_of(3 * BATCH))
    shutil.rmtree(rig.location)
    result = rig.run(environment=environment)
    assert isinstance(result, Halted)
    assert "keeps state in its checkpoint, which offsets alone cannot rebuild" in result.message
    assert_minutes_once(rig, minutes_of(3 * BATCH))


# In `make test` a seed names the policy: tests/unit/test_generations.py.
@only_in_full
@pytest.mark.parametrize(("policy", "held_back_minutes"), [("max", 0), ("min", LATE_MINUTES)])
def test_a_query_of_two_watermarks_goes_by_its_policy_through_kills(
    rig: Rig, policy: str, held_back_minutes: int
) -> None:
    """The second watermark is ten minutes behind; a new generation after the kill goes by the same policy."""
    environment = counting_minutes(rig, TWO_WATERMARKS)
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = BATCH
    settings = {"multipleWatermarkPolicy": policy, "statefulOperator.allowMultiple": "false"}
    rig.overrides["spec.sparkConf"] = {
        **rig.document()["spec"]["sparkConf"],
        **{f"spark.sql.streaming.{name}": value for name, value in settings.items()},
    }
    for number in range(0, 3 * BATCH, 4):
        rig.produce(4, ts=moment_of(number))
    crash = "batch.rows-written@2=kill-driver batch.landed@3=kill-driver"
    assert rig.run(crash=crash, environment=environment) == Done(completed=True), rig.story()
    assert rig.verdicts() == ["FirstStart", "ReplayBatch", "SkipLanded"]
    expected = minutes_of(3 * BATCH)
    assert_minutes_once(rig, expected[: len(expected) - held_back_minutes])


# In `make test`: tests/unit/decide/test_allowed.py, and the state that a driver continues without in test_retained_state.py.
@only_in_full
def test_an_aggregation_whose_first_batch_has_not_landed_starts_over_without_its_checkpoint(rig: Rig) -> None:
    """Its state is made with batch 0 only, and nothing has landed but that: so batch 0 it is, at the same positions."""
    environment = counting_minutes(rig)
    for number in range(0, BATCH, 4):
        rig.produce(4, ts=moment_of(number))
    opened = rig.open()
    with running(rig, opened, crash="batch.rows-written@1=hold", environment=environment):
        eventually(lambda: any(rig.folder.glob("fired-0-*")), "batch 1 is about to land", 90)
        shutil.rmtree(rig.location)
        opened.launcher.kill(Epoch(1))
        eventually(lambda: rig.landed_batch() > 0, "its successor has landed", 120)
    assert rig.run(environment=environment) == Done(completed=True), rig.story()
    assert rig.verdicts()[:2] == ["FirstStart", "RebuildFromSink"]
    assert_minutes_once(rig, minutes_of(BATCH))


def test_an_aggregation_that_is_to_land_by_partition_halts_at_once_and_says_what_to_do(rig: Rig) -> None:
    environment = counting_minutes(rig)
    rig.overrides["spec.sink.postgres.commit"] = "Partition"
    rig.produce(40)
    result = rig.run(environment=environment)
    assert isinstance(result, Halted)
    assert "set commit to Batch in the sink" in result.message
    assert rig.verdicts() == ["FirstStart"]


def test_an_aggregation_that_never_ends_is_refused_at_once(rig: Rig) -> None:
    rig.overrides["spec.transform"] = {"sql": "SELECT customer, count(*) AS id FROM source GROUP BY customer"}
    rig.produce(40)
    result = rig.run()
    assert isinstance(result, Halted)
    assert "The transform cannot run as a stream that appends rows" in result.message
    assert "An aggregation needs a watermark" in result.message
    assert rig.verdicts() == ["FirstStart"]


def counting_minutes(rig: Rig, transform: str = WINDOWS) -> dict[str, str]:
    """Let the stream count and sum the ids of each minute; returns the environment in which it finds the transform."""
    (rig.folder / "windows_of_a_test.py").write_text(transform)
    rig.sql("create table totals (minute timestamptz, orders bigint, total bigint)")
    rig.overrides |= {
        "spec.transform": {"python": {"module": "windows_of_a_test", "function": "totals"}},
        "spec.sink.postgres.table": "totals",
    }
    return {"PYTHONPATH": os.pathsep.join([str(rig.folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


def moment_of(number: int) -> str:
    """Records of ten ids share a minute."""
    return (NOON + timedelta(minutes=number // A_MINUTE)).isoformat()


def minutes_of(count: int) -> list[tuple[datetime, int, int]]:
    """Every minute but the last one, which is not over yet, with the count and the sum of its ids."""
    ids: dict[datetime, list[int]] = {}
    for number in range(count):
        ids.setdefault(datetime.fromisoformat(moment_of(number // 4 * 4)), []).append(number)
    return [(minute, len(found), sum(found)) for minute, found in sorted(ids.items())][:-1]


def assert_minutes_once(rig: Rig, expected: list[tuple[datetime, int, int]]) -> None:
    assert rig.sql("select minute, orders, total from totals order by minute") == expected
