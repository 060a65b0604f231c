"""A stream takes over from the leases of an application that has stopped, and refuses what does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.connectors.kinesis.leases import EVERY_USER_RECORD, Checkpoint, Lease
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.errors import StartInvalid, StoreUnreachable
from exactlyonce.positions.ranges import Positions
from tests.kinesis_api import SHARD, KinesisApi
from tests.kinesis_in_memory import aggregated
from tests.lease_table_in_memory import LeasesInMemory
from tests.unit.lease_streams import (
    LEFT,
    RIGHT,
    STREAM_SHOWN,
    at,
    bounds,
    split,
    started,
)


def test_a_stream_goes_on_behind_the_record_that_a_lease_names() -> None:
    api, table = KinesisApi(), LeasesInMemory()
    first, second = api.put(b"1", b"2")
    table.held[SHARD] = Lease(SHARD, Checkpoint(str(first), 0), 3, "a worker that is gone")
    assert started(api, table) == {SHARD: position_after_record(first)}
    assert position_after_record(first) <= UserRecord(second).position
    assert table.writes == []


def test_a_stream_goes_on_inside_an_aggregate_and_behind_its_last_user_record() -> None:
    api, table = KinesisApi(), LeasesInMemory()
    (number,) = api.put(aggregated(["a", "b", "c"]))
    table.held[SHARD] = Lease(SHARD, Checkpoint(str(number), 0))
    assert started(api, table) == {SHARD: UserRecord(number, 1).position}
    table.held[SHARD] = Lease(SHARD, Checkpoint(str(number), 2))
    assert started(api, table) == {SHARD: position_after_record(number)}


def test_a_stream_starts_with_the_children_of_shards_that_were_read_to_their_ends() -> None:
    api, table = KinesisApi(), LeasesInMemory()
    api.put(b"1")
    split(api)
    table.held = {
        SHARD: Lease(SHARD, Checkpoint("SHARD_END")),
        LEFT: Lease(LEFT, Checkpoint("TRIM_HORIZON")),
        RIGHT: Lease(RIGHT, Checkpoint("TRIM_HORIZON")),
        "shardId-000000000777": Lease("shardId-000000000777", Checkpoint("SHARD_END")),
    }
    assert started(api, table) == {SHARD: SHARD_END, LEFT: TRIM_HORIZON, RIGHT: TRIM_HORIZON}


def test_a_child_that_nobody_has_begun_follows_on_its_parent() -> None:
    api, table = KinesisApi(), LeasesInMemory()
    first, _ = api.put(b"1", b"2")
    split(api)
    leases = {SHARD: Checkpoint(str(first)), LEFT: Checkpoint("TRIM_HORIZON"), RIGHT: Checkpoint("TRIM_HORIZON")}
    table.held = {key: Lease(key, checkpoint) for key, checkpoint in leases.items()}
    assert started(api, table) == {SHARD: position_after_record(first)}


def test_a_lease_at_latest_goes_on_with_what_arrives_next() -> None:
    api, table = KinesisApi(), LeasesInMemory(held={SHARD: Lease(SHARD, Checkpoint("LATEST"))})
    (number,) = api.put(b"1")
    assert started(api, table) == {SHARD: position_after_record(number)}


def test_an_application_that_runs_is_refused_and_nothing_is_written() -> None:
    api, table = KinesisApi(), LeasesInMemory(held={SHARD: Lease(SHARD, Checkpoint("TRIM_HORIZON"), 1, "worker-1")})

    def renew() -> None:
        table.held[SHARD] = replace(table.held[SHARD], counter=table.held[SHARD].counter + int(api.time.seconds > 9))

    table.before_look = renew
    with pytest.raises(
        StartInvalid, match=r"while worker 'worker-1' holds the lease of shardId-000000000000 in table app"
    ):
        started(api, table)
    assert table.writes == []


@pytest.mark.parametrize(
    ("leases", "told"),
    [
        ({}, "lacks shardId-000000000000"),
        ({SHARD: Checkpoint("AT_TIMESTAMP")}, "at AT_TIMESTAMP, a moment that the application alone knows"),
        (
            {SHARD: Checkpoint("TRIM_HORIZON"), RIGHT: Checkpoint("5", 0)},
            "names shardId-000000000002, which the stream does",
        ),
        (
            {SHARD: Checkpoint("12345", 0)},
            "behind record 12345, which has passed its retention or is of another stream",
        ),
        ({SHARD: Checkpoint("SHARD_END")}, "at SHARD_END, and that shard is open"),
    ],
)
def test_leases_that_do_not_fit_the_stream_are_refused_in_one_sentence(
    leases: dict[str, Checkpoint], told: str
) -> None:
    api = KinesisApi()
    api.put(b"1")
    table = LeasesInMemory(held={key: Lease(key, checkpoint) for key, checkpoint in leases.items()})
    with pytest.raises(StartInvalid, match=told) as refused:
        started(api, table)
    assert str(refused.value).startswith(
        "source.kinesis.start: LeaseTable cannot be used, because table app of DynamoDB"
    )
    assert table.writes == []


def test_a_lease_with_a_prepared_checkpoint_is_refused_because_its_records_may_have_taken_effect() -> None:
    api = KinesisApi()
    first, _ = api.put(b"1", b"2")
    table = LeasesInMemory(held={SHARD: Lease(SHARD, Checkpoint(str(first), 0), is_pending=True, is_prepared=True)})
    with pytest.raises(StartInvalid, match=r"has a prepared checkpoint of shardId-000000000000"):
        started(api, table)
    assert table.writes == []


def test_a_lease_behind_the_end_of_its_shard_is_of_another_stream() -> None:
    api = KinesisApi()
    api.put(b"1")
    split(api)
    foreign = str(api.next_number + 2)
    table = LeasesInMemory(held={SHARD: Lease(SHARD, Checkpoint(foreign, 0))})
    with pytest.raises(StartInvalid, match=r"at after [0-9]+, .*it is one of another shard or stream"):
        started(api, table)
    assert table.writes == []


def test_after_a_takeover_the_leases_of_workers_that_are_gone_are_moved_at_once() -> None:
    api, table = KinesisApi(), LeasesInMemory()
    first, second = api.put(b"1", b"2")
    table.held[SHARD] = Lease(SHARD, Checkpoint(str(first), 0), 3, "a worker that is gone")
    source = bounds(api, table, "LeaseTable")
    source.start(source.view())
    source.show_landed(replace(STREAM_SHOWN, took_over=True), at(SHARD, position_after_record(second)))
    assert table.held[SHARD].checkpoint == Checkpoint(str(second), EVERY_USER_RECORD)


def test_a_changed_resource_that_adds_no_shard_needs_the_table_no_more() -> None:
    def fail() -> None:
        raise StoreUnreachable("there is no answer in time.")

    source = bounds(KinesisApi(), LeasesInMemory(before_look=fail), "LeaseTable")
    assert source.start(source.view(), frozenset()) == Positions()
