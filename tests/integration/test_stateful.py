"""A query that keeps state in its checkpoint: what it emits counts once, and its state is never lost without a word."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Done, Halted
from tests.combinations import in_full, one_or_all, only_in_full
from tests.rig import Rig, eventually, running
from tests.stateful_queries import (
    BATCH,
    CHAIN,
    LATE_MINUTES,
    PYTHON_STATE,
    SQL_SESSIONS,
    SQL_WINDOWS,
    WINDOWS,
    StatefulQuery,
)

pytestmark = pytest.mark.seconds(10)

assert WINDOWS.module is not None
TWO_WATERMARKS = WINDOWS.module.replace(
    'rows.withWatermark("ts", "0 seconds")',
    f'rows.withColumn("late", functions.expr("ts - interval {LATE_MINUTES} minutes"))'
    '.withWatermark("late", "0 seconds").withWatermark("ts", "0 seconds")',
)
"""Spark groups by the column of the last watermark alone."""


# The chain of operators, by default: test_retained_state.py.
@pytest.mark.parametrize("query", one_or_all([PYTHON_STATE, CHAIN, WINDOWS, SQL_WINDOWS, SQL_SESSIONS]), ids=str)
def test_a_query_with_state_counts_every_record_once_through_kills_and_halts_without_its_checkpoint(
    rig: Rig, query: StatefulQuery
) -> None:
    environment = query.set_up(rig)
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = BATCH
    query.produce(rig, 3 * BATCH)
    # A batch of a query with state that has landed before Spark knew: test_output_modes.py.
    crash, verdicts = in_full(
        ("batch.rows-written@2=kill-driver batch.landed@3=kill-driver", ["FirstStart", "ReplayBatch", "SkipLanded"]),
        otherwise=("batch.rows-written@2=kill-driver", ["FirstStart", "ReplayBatch"]),
    )
    assert rig.run(crash=crash, environment=environment) == Done(completed=True), rig.story()
    assert rig.verdicts() == verdicts
    query.assert_minutes_once(rig)
    landed = rig.landed_batch()
    shutil.rmtree(rig.location)
    result = rig.run(environment=environment)
    assert isinstance(result, Halted)
    assert "keeps state in its checkpoint, which offsets alone cannot rebuild" in result.message
    assert rig.landed_batch() == landed
    query.assert_minutes_once(rig)


# By default a seed names the policy: tests/unit/test_generations.py.
@only_in_full
@pytest.mark.parametrize(("policy", "held_back_minutes"), [("max", 0), ("min", LATE_MINUTES)])
def test_a_query_of_two_watermarks_goes_by_its_policy_through_kills(
    rig: Rig, policy: str, held_back_minutes: int
) -> None:
    """The second watermark is ten minutes behind; a new generation after the kill goes by the same policy."""
    query = replace(WINDOWS, module=TWO_WATERMARKS, held_back_minutes=held_back_minutes)
    environment = query.set_up(rig)
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = BATCH
    settings = {"multipleWatermarkPolicy": policy, "statefulOperator.allowMultiple": "false"}
    rig.overrides["spec.sparkConf"] = {
        **rig.document()["spec"]["sparkConf"],
        **{f"spark.sql.streaming.{name}": value for name, value in settings.items()},
    }
    query.produce(rig, 3 * BATCH)
    crash = "batch.rows-written@2=kill-driver batch.landed@3=kill-driver"
    assert rig.run(crash=crash, environment=environment) == Done(completed=True), rig.story()
    assert rig.verdicts() == ["FirstStart", "ReplayBatch", "SkipLanded"]
    query.assert_minutes_once(rig)


# By default: tests/unit/decide/test_allowed.py, and the state that a driver continues without in test_retained_state.py.
@only_in_full
def test_an_aggregation_whose_first_batch_has_not_landed_starts_over_without_its_checkpoint(rig: Rig) -> None:
    """Its state is made with batch 0 only, and nothing has landed but that: so batch 0 it is, at the same positions."""
    environment = WINDOWS.set_up(rig)
    WINDOWS.produce(rig, BATCH)
    opened = rig.open()
    with running(rig, opened, crash="batch.rows-written@1=hold", environment=environment):
        eventually(lambda: any(rig.folder.glob("fired-0-*")), "batch 1 is about to land", 90)
        shutil.rmtree(rig.location)
        opened.launcher.kill(Epoch(1))
        eventually(lambda: rig.landed_batch() > 0, "its successor has landed", 120)
    assert rig.run(environment=environment) == Done(completed=True), rig.story()
    assert rig.verdicts()[:2] == ["FirstStart", "RebuildFromSink"]
    WINDOWS.assert_minutes_once(rig)


def test_an_aggregation_that_is_to_land_by_partition_halts_at_once_and_says_what_to_do(rig: Rig) -> None:
    environment = WINDOWS.set_up(rig)
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
