"""Where the difference of two positions is not a number of records, nobody takes it for one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from exactlyonce.api.spec import Delivery
from exactlyonce.cli.offsets import rows_of
from exactlyonce.connectors.kinesis.positions import position_after_record
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.launch.port import ShrunkLimit
from exactlyonce.ledger.rows import LandedPositions
from exactlyonce.monitor.lag import PartitionLag, PartitionState, dated, measured, positions_to_date, total
from exactlyonce.positions.ranges import PARTITION_END, BatchNumber, OffsetRange, Partition, Positions, Ranges
from exactlyonce.source.port import Bounds
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.growth import Growth
from exactlyonce_spark.landing_checks import require_start
from exactlyonce_spark.planned import PlannedBatch, PositionsDiffer

PARENT, CHILD = Partition("orders", "shardId-000000000000"), Partition("orders", "shardId-000000000001")
NUMBER = 49590338271490256608559692538361571095921575989136588898
AFTER, FURTHER = position_after_record(NUMBER), position_after_record(NUMBER + 10**30)
OPEN = Bounds(0, PARTITION_END, retention_seconds=86_400.0)
NOON = 1_800_000_000.0
SOURCE = KinesisSource.model_validate({"streamName": "orders", "region": "eu-central-1"})


def test_lag_in_records_is_not_known_and_lag_in_time_is_that_of_the_oldest_record_that_waits() -> None:
    lags = measured({PARENT: PARTITION_END, CHILD: AFTER}, {PARENT: OPEN, CHILD: OPEN}, {}, NOON)
    assert positions_to_date(lags) == {CHILD: AFTER}, "nothing waits in a partition that has ended"
    before = total(lags, NOON)
    assert (before.records, before.oldest_timestamp, before.is_caught_up) == (None, None, False)
    waiting = total(dated(lags, {CHILD: NOON - 3_600}), NOON)
    assert (waiting.records, waiting.oldest_timestamp, waiting.is_caught_up) == (None, NOON - 3_600, False)
    assert waiting.retention_seconds == 82_800.0, "a day less the hour that the record is old"


def test_a_record_that_waits_is_fetched_once_and_the_end_is_looked_at_again() -> None:
    lag = PartitionLag(AFTER, OPEN)
    dated_at = dated({CHILD: lag}, {CHILD: NOON})[CHILD]
    assert not dated_at.must_be_dated
    at_tip = dated({CHILD: lag}, {CHILD: None})[CHILD]
    assert at_tip.must_be_dated
    assert at_tip.is_caught_up
    found = total({CHILD: at_tip}, NOON)
    assert (found.is_caught_up, found.records) == (True, 0), "an idle stream that has never landed needs nobody"


def test_each_shard_has_the_state_that_is_known_of_it() -> None:
    lag = PartitionLag(AFTER, OPEN)
    assert PartitionLag(PARTITION_END, OPEN).state is PartitionState.ENDED
    assert lag.state is PartitionState.UNKNOWN
    assert dated({CHILD: lag}, {CHILD: NOON})[CHILD].state is PartitionState.BEHIND
    assert dated({CHILD: lag}, {CHILD: None})[CHILD].state is PartitionState.CAUGHT_UP


def test_a_stream_all_of_whose_partitions_have_ended_has_no_lag() -> None:
    found = total(measured({PARENT: PARTITION_END}, {PARENT: OPEN}, {}, NOON), NOON)
    assert (found.records, found.is_caught_up) == (0, True)


def test_offsets_are_shown_as_the_source_writes_them_without_a_lag() -> None:
    landed = Positions({PARENT: PARTITION_END, CHILD: AFTER})
    rows = rows_of(SOURCE, landed, {CHILD: OPEN}, planned=landed)
    assert rows[CHILD] == {
        "planned": f"after {NUMBER}",
        "checkpointed": None,
        "landed": f"after {NUMBER}",
        "earliest": "TRIM_HORIZON",
        "latest": None,
        "lag": None,
    }
    assert rows[PARENT]["landed"] == "SHARD_END"


def test_only_a_batch_that_reads_nothing_is_known_to_be_small() -> None:
    settings = BatchSettings(Delivery.EXACTLY_ONCE, positions_count_records=False)
    tiny, empty = Ranges({CHILD: OffsetRange(AFTER, AFTER + 1)}), Ranges({CHILD: OffsetRange(AFTER, AFTER)})
    assert not settings.is_small(tiny)
    assert settings.is_small(empty)
    assert settings.records_in(tiny, 7) == 7
    assert settings.comparable(7) is None
    counted = BatchSettings(Delivery.EXACTLY_ONCE)
    assert counted.is_small(tiny)
    assert (counted.records_in(tiny, 7), counted.comparable(7)) == (1, 7)


def test_the_most_records_of_a_batch_are_its_limit_and_not_its_width() -> None:
    limited = SOURCE.model_copy(update={"max_records_per_trigger": 500})
    assert limited.most_records(Ranges({CHILD: OffsetRange(AFTER, FURTHER)})) == 500
    assert limited.most_records(Ranges({CHILD: OffsetRange(AFTER, AFTER)})) == 0
    assert limited.batch_limit(timedelta(seconds=1)) == "500 records or 268435456 bytes"


def test_a_smaller_limit_ends_although_a_partition_of_the_batch_has_ended_and_left() -> None:
    until = Positions({PARENT: PARTITION_END, CHILD: AFTER})
    growth = Growth(ShrunkLimit(5, until.to_json()))
    growth.landed(Positions({PARENT: PARTITION_END, CHILD: 0}))
    assert not growth.due
    growth.landed(Positions({CHILD: AFTER}))
    assert growth.due


@pytest.mark.parametrize(("parent", "may"), [(PARTITION_END, True), (AFTER, False)])
def test_a_batch_may_leave_out_a_partition_only_once_its_end_has_landed(parent: int, may: bool) -> None:
    landed = LandedPositions(Positions({PARENT: parent, CHILD: 0}), {})
    batch = PlannedBatch(BatchNumber(5), Ranges({CHILD: OffsetRange(0, AFTER)}), {})
    if may:
        require_start(landed, batch)
    else:
        with pytest.raises(PositionsDiffer, match=f"does not read {PARENT}"):
            require_start(landed, batch)


def test_positions_beyond_64_bits_keep_their_value_in_every_form() -> None:
    ranges: Any = Ranges({PARENT: OffsetRange(FURTHER, PARTITION_END), CHILD: OffsetRange(0, AFTER)})
    assert Ranges.from_json(ranges.to_json()) == ranges
    assert Positions.from_json(ranges.ends.to_json()) == ranges.ends
