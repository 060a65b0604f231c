"""A lease table shows where a stream has landed, and a stream takes over from the leases of an application that has stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.connectors.kinesis.dynamo_db import TableMissing
from exactlyonce.connectors.kinesis.lease_marks import Mark, name_of
from exactlyonce.connectors.kinesis.lease_plan import UNMOVED_SECONDS
from exactlyonce.connectors.kinesis.leases import EVERY_USER_RECORD, Checkpoint, Lease
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.errors import StoreUnreachable
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.source.port import NotShown, NotShownBecause, ShownStream
from tests.kinesis_api import SHARD, STREAM, KinesisApi
from tests.lease_table_in_memory import LeasesInMemory
from tests.unit.lease_streams import (
    LEFT,
    RIGHT,
    STREAM_SHOWN,
    at,
    bounds,
    split,
    with_record_1,
)


def test_a_stream_that_the_resource_does_not_name_any_more_has_no_id() -> None:
    source = bounds(KinesisApi(), LeasesInMemory())
    assert source.origin_ids([STREAM, "another"]).keys() == {STREAM}
    assert source.origin_ids(["another"]) == {}


def test_what_has_landed_is_shown_and_a_second_round_writes_nothing() -> None:
    api, table = KinesisApi(), LeasesInMemory()
    (number,) = api.put(b"1")
    source = bounds(api, table)
    assert source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(number))) is None
    assert table.held[SHARD].checkpoint == Checkpoint(str(number), EVERY_USER_RECORD)
    source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(number)))
    assert len(table.writes) == 1
    source.show_landed(STREAM_SHOWN, at(SHARD, SHARD_END))
    assert (table.held[SHARD].checkpoint, table.held[SHARD].counter) == (Checkpoint("SHARD_END"), 1)


def test_a_lease_stays_at_the_trim_horizon_until_a_record_of_its_shard_has_landed() -> None:
    """The stream stands behind a number that Kinesis never gave to a record, and that no application can continue behind."""
    api, table = KinesisApi(), LeasesInMemory()
    first, second = api.put(b"1", b"2")
    source, again = bounds(api, table), replace(STREAM_SHOWN, life="fedcba9876543210")
    named = at(SHARD, UserRecord(first).position)
    for positions in (named, at(SHARD, TRIM_HORIZON), named):
        assert source.show_landed(STREAM_SHOWN, positions) is None
        assert table.held[SHARD].checkpoint == Checkpoint("TRIM_HORIZON")
    assert len(table.writes) == 1
    assert source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(first))) is None
    assert table.held[SHARD].checkpoint == Checkpoint(str(first), EVERY_USER_RECORD)
    api.expire(1)
    assert source.show_landed(again, at(SHARD, UserRecord(second).position)) is None, "it has started over"
    assert table.held[SHARD].checkpoint == Checkpoint("TRIM_HORIZON")
    api.expire(1)
    del table.held[SHARD]
    assert source.show_landed(again, at(SHARD, UserRecord(second).position)) is None
    assert table.held[SHARD].checkpoint == Checkpoint("TRIM_HORIZON"), (
        "nothing is left, and all that comes is behind it"
    )


def test_a_worker_that_took_a_lease_is_told_as_long_as_it_lives_and_left_alone() -> None:
    api, table = with_record_1(), LeasesInMemory()
    source = bounds(api, table)
    source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(7)))
    table.held[SHARD] = taken = replace(table.held[SHARD], owner="worker-1", counter=5)
    for _ in range(2):
        told = source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(9)))
        assert told is not None
        assert told.because is NotShownBecause.TWO_CONSUMERS
        assert told.words.startswith(
            "Two consumers: worker 'worker-1' of a KCL application holds the lease of shardId-000000000000"
        )
        assert ". If that application reads the same data stream as this stream, " in told.words, (
            "each has shards of that name"
        )
    assert table.held[SHARD] == taken
    api.time.seconds += UNMOVED_SECONDS
    assert source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(9))) is None
    assert table.held[SHARD].checkpoint.sequence_number == "9"
    assert table.held[SHARD].owner is None


def test_a_shard_that_the_stream_had_landed_to_its_end_before_it_started_over_is_not_a_second_consumer() -> None:
    api, table = KinesisApi(), LeasesInMemory()
    source = bounds(api, table)
    source.show_landed(STREAM_SHOWN, at(SHARD, SHARD_END))
    again = replace(STREAM_SHOWN, life="fedcba9876543210")
    told = source.show_landed(again, at(SHARD, position_after_record(7)))
    assert told is not None
    assert told.because is NotShownBecause.FAILED
    assert told.words.startswith(
        "The lease of shardId-000000000000 in table app of DynamoDB in eu-west-1 is at SHARD_END"
    )
    assert table.held[SHARD].checkpoint == Checkpoint("SHARD_END"), (
        "KCL deletes such a lease and continues with its children"
    )
    assert source.show_landed(again, at(SHARD, SHARD_END)) is None


def test_a_renewal_between_the_look_and_the_write_wins() -> None:
    api, table = with_record_1(), LeasesInMemory()
    source = bounds(api, table)
    source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(7)))

    def renew() -> None:
        table.held[SHARD] = replace(table.held[SHARD], owner="worker-1", counter=5)

    table.before_write = renew
    told = source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(9)))
    assert told is not None
    assert told.because is NotShownBecause.PENDING
    assert table.held[SHARD].checkpoint.sequence_number == "7"


def test_what_a_round_had_no_time_to_write_is_pending_and_written_by_the_next_one() -> None:
    api, table = with_record_1(), LeasesInMemory()
    split(api)
    source = bounds(api, table)
    api.put(b"2", shard=LEFT)
    api.put(b"3", shard=RIGHT)
    stands = {SHARD: SHARD_END, LEFT: position_after_record(7), RIGHT: position_after_record(8)}
    landed = Positions({Partition(STREAM, shard): position for shard, position in stands.items()})
    table.before_look = lambda: api.time.sleep(11)
    told = source.show_landed(STREAM_SHOWN, landed)
    words = "Not all leases in table app of DynamoDB in eu-west-1 are written yet; the next look continues."
    assert told == NotShown(NotShownBecause.PENDING, words)
    assert table.held == {}
    table.before_look = lambda: None
    assert source.show_landed(STREAM_SHOWN, landed) is None
    numbers = {key: lease.checkpoint.sequence_number for key, lease in table.held.items()}
    assert numbers == {SHARD: "SHARD_END", LEFT: "7", RIGHT: "8"}


def test_a_table_that_does_not_answer_is_told_and_stops_nothing() -> None:
    def fail() -> None:
        raise StoreUnreachable("there is no answer in time.")

    api, table = KinesisApi(), LeasesInMemory(before_look=fail)
    told = bounds(api, table).show_landed(STREAM_SHOWN, at(SHARD, position_after_record(9)))
    words = "The lease table does not show what has landed: there is no answer in time."
    assert told == NotShown(NotShownBecause.FAILED, words)


def test_a_table_that_was_deleted_meanwhile_is_made_again_with_the_next_look() -> None:
    api, table = with_record_1(), LeasesInMemory()
    source = bounds(api, table)
    source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(7)))
    table.held, table.is_there = {}, False

    def require_there() -> None:
        if not table.is_there:
            raise TableMissing("there is no table app in eu-west-1.")

    table.before_look = require_there
    told = source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(9)))
    assert told is not None
    assert told.words == "The lease table does not show what has landed: there is no table app in eu-west-1."
    assert source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(9))) is None
    assert table.held[SHARD].checkpoint.sequence_number == "9"


# What a person did: the leases that are in the table, and what somebody is told of them.
OTHERS = {
    "the table of an application that is stopped for the night": (
        Lease(SHARD, Checkpoint("5", 0), 17),
        "The lease of shardId-000000000000 in table app of DynamoDB in eu-west-1 was written by a KCL application and not by",
    ),
    "the table of another stream": (
        Lease(SHARD, Checkpoint("5", 0), 2, mark=Mark(("shop/returns 1 2",), "5:0")),
        "The lease of shardId-000000000000 in table app of DynamoDB in eu-west-1 shows where another stream has landed",
    ),
    "the table from which another stream has started since": (
        Lease(SHARD, Checkpoint("5", 0), 2, mark=Mark(("shop/returns 1 2", name_of(STREAM_SHOWN)), "5:0")),
        "Another stream has taken over the lease of shardId-000000000000 in table app of DynamoDB in eu-west-1",
    ),
    "an application continued while the stream was suspended": (
        Lease(SHARD, Checkpoint("5", 0), 9, mark=Mark((name_of(STREAM_SHOWN),), "3:0")),
        "A KCL application has continued behind the checkpoint that this stream wrote to the lease of shardId-000000000000 in "
        "table app of DynamoDB in eu-west-1",
    ),
}


@pytest.mark.parametrize("mistake", OTHERS)
def test_a_lease_that_is_not_the_streams_is_left_as_it_is_and_told_in_one_sentence_that_says_what_to_do(
    mistake: str,
) -> None:
    lease, told = OTHERS[mistake]
    table = LeasesInMemory(held={SHARD: lease})
    found = bounds(KinesisApi(), table).show_landed(STREAM_SHOWN, at(SHARD, position_after_record(9)))
    assert found is not None
    assert found.because is NotShownBecause.OF_ANOTHER
    assert found.words.startswith(told)
    assert "so nothing is written to that table" in found.words
    assert " in spec.source.kinesis.leaseTable" in found.words, "what to do"
    assert table.writes == []


def test_of_two_streams_that_name_one_new_table_the_second_is_told() -> None:
    api, table = with_record_1(), LeasesInMemory()
    one, other = bounds(api, table), bounds(api, table)
    assert one.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(7))) is None
    second = ShownStream(
        "shop/orders", "system 7 database 6", "fedcba9876543210"
    )  # of the same name, in another cluster
    told = other.show_landed(second, at(SHARD, position_after_record(9)))
    assert told is not None
    assert "shows where another stream has landed" in told.words
    assert one.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(8))) is None
    assert table.held[SHARD].checkpoint.sequence_number == "8"


def test_a_lease_whose_worker_may_be_gone_is_pending_until_its_counter_has_stood_still() -> None:
    api, table = with_record_1(), LeasesInMemory()
    bounds(api, table).show_landed(STREAM_SHOWN, at(SHARD, position_after_record(7)))
    table.held[SHARD] = replace(table.held[SHARD], owner="worker-1", counter=5)
    source = bounds(api, table)  # of an operator that has just started
    told = source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(9)))
    assert told is not None
    assert told.because is NotShownBecause.PENDING
    api.time.seconds += UNMOVED_SECONDS
    assert source.show_landed(STREAM_SHOWN, at(SHARD, position_after_record(9))) is None
    assert table.held[SHARD].checkpoint.sequence_number == "9"
