"""What a stream of Kinesis holds, where it starts, and how old what waits is, as the core asks for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from exactlyonce.connectors.kinesis.connector import SOURCE, kinesis_address
from exactlyonce.connectors.kinesis.fleet import KinesisFleet
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.connectors.kinesis.reading import ShardReader
from exactlyonce.connectors.kinesis.shards import ShardMapBroken
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.errors import OriginMissing, SecretMissing, SourceRefused
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions, Ranges
from exactlyonce.source.port import Bounds
from tests.kinesis_api import (
    GREATEST_HASH_KEY,
    SHARD,
    START_SECONDS,
    STREAM,
    KinesisApi,
    StoredShard,
    bounds_of,
    client_of,
)

CHILD_ID, GRANDCHILD_ID = "shardId-000000000001", "shardId-000000000002"
PARENT, CHILD, GRANDCHILD = (Partition(STREAM, shard) for shard in (SHARD, CHILD_ID, GRANDCHILD_ID))
OPEN, GONE = Bounds(TRIM_HORIZON, SHARD_END), Bounds(SHARD_END, SHARD_END)


@pytest.fixture
def api() -> KinesisApi:
    return KinesisApi()


def resharded(api: KinesisApi) -> None:
    """Close the first shard, and let one follow on it."""
    api.close_shard()
    api.shards[CHILD_ID] = StoredShard((SHARD,))


def started(api: KinesisApi, **start: Any) -> Positions:
    asked = bounds_of(api, **start)
    return asked.start(asked.view())


def test_a_stream_starts_with_the_oldest_records_and_its_children_follow(api: KinesisApi) -> None:
    resharded(api)
    assert started(api) == Positions({PARENT: TRIM_HORIZON})


def test_latest_is_behind_the_newest_record_that_is_there_and_closed_shards_are_left_at_their_ends(
    api: KinesisApi,
) -> None:
    api.put(b"old", b"older")
    resharded(api)
    numbers = api.put(*[b"in the child"] * 10, shard=CHILD_ID)
    api.empty_share = 0.5
    assert started(api, **{"from": "Latest"}) == Positions(
        {PARENT: SHARD_END, CHILD: position_after_record(numbers[-1])}
    )


def test_latest_of_a_shard_without_records_is_its_start(api: KinesisApi) -> None:
    assert started(api, **{"from": "Latest"}) == Positions({PARENT: TRIM_HORIZON})


def test_a_moment_starts_with_the_first_record_that_arrived_then_and_that_record_is_read_first(api: KinesisApi) -> None:
    api.put(b"before")
    api.time.seconds = 100.0
    at, _ = api.put(b"at", b"after")
    moment = datetime.fromtimestamp(START_SECONDS + 50, UTC).isoformat()
    found = started(api, **{"from": "Timestamp", "timestamp": moment})
    assert found == Positions({PARENT: UserRecord(at).position})
    fetched = ShardReader(client_of(api, api.time), STREAM, SHARD, found[PARENT]).fetch()
    assert [record.data for record in fetched.records] == [b"at", b"after"]


def test_a_moment_behind_all_records_of_a_closed_shard_starts_in_its_child(api: KinesisApi) -> None:
    api.put(b"before")
    resharded(api)
    api.time.seconds = 100.0
    [number] = api.put(b"in the child", shard=CHILD_ID)
    moment = datetime.fromtimestamp(START_SECONDS + 50, UTC).isoformat()
    assert started(api, **{"from": "Timestamp", "timestamp": moment}) == Positions(
        {PARENT: SHARD_END, CHILD: UserRecord(number).position}
    )


@pytest.mark.parametrize(
    "start",
    [
        {"from": "TrimHorizon"},
        {"from": "Latest"},
        {"from": "Timestamp", "timestamp": "2026-01-31T00:00:00Z"},
        {"from": "Positions", "positions": {SHARD: "TRIM_HORIZON"}},
    ],
)
def test_no_stream_starts_while_no_open_shard_holds_some_of_the_keys(api: KinesisApi, start: dict[str, Any]) -> None:
    api.hash_keys = {SHARD: (0, GREATEST_HASH_KEY - 1)}
    with pytest.raises(
        ShardMapBroken, match=f"No open shard holds hash keys {GREATEST_HASH_KEY} to {GREATEST_HASH_KEY}"
    ):
        started(api, **start)


def test_a_stream_that_does_not_exist_is_missing_and_nothing_starts(api: KinesisApi) -> None:
    api.is_missing = True
    asked = bounds_of(api)
    view = asked.view(frozenset({PARENT}))
    assert (view.missing, view.bounds, view.origin_ids) == ((STREAM,), {}, {})
    with pytest.raises(OriginMissing, match="has no stream orders; create it"):
        asked.start(view)


def test_the_identity_of_a_stream_is_its_creation_in_every_time_zone(api: KinesisApi) -> None:
    before = bounds_of(api).view().origin_ids
    api.created = api.created.astimezone(datetime.fromtimestamp(0, UTC).astimezone().tzinfo)
    assert bounds_of(api).view().origin_ids == before == {STREAM: "2026-01-01T00:00:00.000+00:00"}
    api.created += timedelta(milliseconds=1)
    assert bounds_of(api).view().origin_ids != before
    assert bounds_of(api).now([PARENT]).origin_ids == bounds_of(api).view().origin_ids


def test_the_record_that_landed_last_is_looked_for_and_an_open_shard_has_no_known_end(api: KinesisApi) -> None:
    numbers = api.put(b"a", b"b", b"c")
    landed = Ranges({PARENT: OffsetRange(UserRecord(numbers[0]).position, position_after_record(numbers[1]))})
    kept = bounds_of(api).last_records(landed).result()
    view = bounds_of(api).view(frozenset({PARENT}), {PARENT: kept[PARENT].offset})
    assert view.bounds == {PARENT: OPEN}
    assert view.records == {PARENT: kept[PARENT]}
    assert kept[PARENT].difference(view.records[PARENT]) is None


def test_once_the_last_landed_record_has_expired_the_oldest_one_left_is_the_earliest(api: KinesisApi) -> None:
    numbers = api.put(b"a", b"b", b"c")
    at = {PARENT: UserRecord(numbers[0]).position}
    api.expire(2)
    view = bounds_of(api).view(frozenset({PARENT}), at)
    assert view.bounds == {PARENT: Bounds(UserRecord(numbers[2]).position, SHARD_END)}
    assert view.records == {}, "it is not held, so it is not said to be another one"
    assert bounds_of(api).records_at(at) == {}
    api.expire(1)
    with pytest.raises(SourceRefused, match="whether records behind it expired before they landed cannot be told"):
        bounds_of(api).view(frozenset({PARENT}), at)
    api.close_shard()
    assert bounds_of(api).view(frozenset({PARENT}), at).bounds == {PARENT: GONE}


def test_a_shard_that_was_read_and_has_expired_holds_nothing_but_its_end(api: KinesisApi) -> None:
    resharded(api)
    del api.shards[SHARD]
    view = bounds_of(api).view(frozenset({PARENT}))
    assert view.bounds == {PARENT: GONE, CHILD: OPEN}
    assert view.selected == {PARENT, CHILD}


def test_a_shard_that_came_and_expired_while_nobody_read_is_told(api: KinesisApi) -> None:
    api.shards = {GRANDCHILD_ID: StoredShard((CHILD_ID,))}
    assert bounds_of(api).view(frozenset({PARENT})).bounds == {PARENT: GONE, CHILD: GONE, GRANDCHILD: OPEN}
    assert bounds_of(api).view(frozenset({PARENT, CHILD})).bounds == {PARENT: GONE, CHILD: GONE, GRANDCHILD: OPEN}
    assert bounds_of(api).view(frozenset({PARENT, GRANDCHILD})).bounds == {PARENT: GONE, GRANDCHILD: OPEN}


def test_the_last_record_of_a_range_is_known_without_reading_it(api: KinesisApi) -> None:
    first, inside = UserRecord(5).position, UserRecord(7, 3).position
    spans = {PARENT: OffsetRange(first, inside), CHILD: OffsetRange(first, SHARD_END), GRANDCHILD: OffsetRange(0, 0)}
    assert bounds_of(api).last_records(Ranges(spans)).result() == {PARENT: Fingerprint(UserRecord(7, 2).position, "")}
    from_the_start = Ranges({PARENT: OffsetRange(TRIM_HORIZON, first)})
    assert not bounds_of(api).last_records(from_the_start).result(), "it ends where the oldest record begins"
    assert not api.calls


def test_a_record_that_the_ledger_has_named_and_that_expires_before_it_lands_is_missing(api: KinesisApi) -> None:
    first, second = api.put(b"a", b"b")
    stands = {PARENT: UserRecord(first).position}
    assert bounds_of(api).view(frozenset({PARENT}), stands=stands).bounds == {PARENT: OPEN}
    api.expire(1)
    missing = Bounds(UserRecord(second).position, SHARD_END)
    assert bounds_of(api).view(frozenset({PARENT}), stands=stands).bounds == {PARENT: missing}
    assert bounds_of(api).view(frozenset({PARENT}), stands={PARENT: TRIM_HORIZON}).bounds == {PARENT: OPEN}


def test_leaders_never_change_so_that_no_batch_reads_a_record_a_second_time(api: KinesisApi) -> None:
    asked = bounds_of(api)
    assert asked.request_leader_epochs([PARENT])() == asked.now([PARENT]).leader_epochs == {PARENT: 0}


def test_the_monitor_learns_how_old_the_oldest_record_is_that_waits(api: KinesisApi) -> None:
    numbers = api.put(b"a")
    api.time.seconds = 60.0
    numbers += api.put(b"b")
    fleet = KinesisFleet(client_of(api, api.time))
    spec = KinesisSource.model_validate({"streamName": STREAM, "region": "eu-west-1"})
    assert fleet.origins([spec]) == {STREAM: (SHARD,)}
    answer = fleet.bounds(frozenset({PARENT}), committed_only=False)
    assert answer.bounds == {PARENT: Bounds(TRIM_HORIZON, SHARD_END, 86_400.0)}
    for position, moment in (
        (TRIM_HORIZON, START_SECONDS),
        (position_after_record(numbers[0]), START_SECONDS + 60),
        (UserRecord(numbers[1], 1).position, START_SECONDS + 60),
        (position_after_record(numbers[1]), None),
        (SHARD_END, None),
    ):
        assert fleet.timestamps({PARENT: position}, committed_only=False) == {PARENT: moment}


def test_a_stream_that_is_gone_does_not_stand_in_the_way_of_others(api: KinesisApi) -> None:
    api.is_missing = True
    fleet = KinesisFleet(client_of(api, api.time))
    assert fleet.origins([KinesisSource.model_validate({"streamName": STREAM, "region": "eu-west-1"})]) == {}
    answer = fleet.bounds(frozenset({PARENT}), committed_only=False)
    assert answer.bounds == {}
    assert isinstance(answer.problems[PARENT], OriginMissing)


LOGIN = {"AWS_ACCESS_KEY_ID": "id ", "AWS_SECRET_ACCESS_KEY": "canary\n"}
WITH_SECRET = KinesisSource.model_validate(
    {"streamName": STREAM, "region": "eu-west-1", "secretRef": {"name": "kinesis"}}
)


def test_the_login_is_that_of_the_secret_and_is_never_shown() -> None:
    place = SOURCE.address(WITH_SECRET, LOGIN)
    assert place.reached_by_process == ()
    assert ("AWS_SECRET_ACCESS_KEY", "canary") in place.key
    assert "canary" not in f"{place} {place.shown} {place.store_name('shop')} {kinesis_address(WITH_SECRET, LOGIN)}"
    assert SOURCE.fleet(place.key) is not None


def test_a_secret_without_a_login_is_refused_and_never_replaced_by_the_login_of_the_process() -> None:
    for secret in ({}, {"AWS_ACCESS_KEY_ID": "id"}):
        with pytest.raises(SecretMissing, match=r"has no .*AWS_SECRET_ACCESS_KEY"):
            SOURCE.address(WITH_SECRET, secret)
    without = KinesisSource.model_validate({"streamName": STREAM, "region": "eu-west-1"})
    assert [place.name for place in SOURCE.address(without, {}).reached_by_process] == [STREAM]
