"""Which records of a data stream a backfill between two moments reads, and what keeps it from beginning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from exactlyonce.connectors.kinesis.between_moments import ranges_between
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.positions import SHARD_END, position_after_record
from exactlyonce.connectors.kinesis.reading import read_range
from exactlyonce.errors import NotBackfilled
from exactlyonce.positions.ranges import Partition, Positions
from tests.kinesis_api import SHARD, START_SECONDS, STREAM, KinesisApi, client_of

CHILDREN = ("shardId-000000000001", "shardId-000000000002")
HOUR = 3600.0


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START_SECONDS + seconds, UTC)


class Scenario:
    """A stream to which records come; `landed` is where the stream that reads it stands in each shard."""

    def __init__(self) -> None:
        self.api = KinesisApi(hash_keys={SHARD: (0, (1 << 128) - 1)}, created=at(-HOUR))
        self.landed: dict[str, int] = {}

    def put(self, seconds: float, *data: str, shard: str = SHARD, lands: bool = True) -> None:
        """Put records at a moment; the stream lands them unless told otherwise."""
        self.api.time.seconds = seconds
        numbers = self.api.put(*(each.encode() for each in data), shard=shard)
        if lands:
            self.landed[shard] = position_after_record(numbers[-1])

    def client(self) -> KinesisClient:
        return client_of(self.api, self.api.time)

    def read(self, begin: float, until: float) -> list[str]:
        """Return the data of the records in the ranges, as a replay reads them."""
        stands = Positions({Partition(STREAM, shard): position for shard, position in self.landed.items()})
        client = self.client()
        found = ranges_between(client, STREAM, STREAM, stands, (at(begin), at(until)))
        return [
            user.data.decode()
            for key, spans in sorted(found.items())
            for span in spans
            for user in read_range(client, STREAM, str(key.key), span.from_offset, span.until_offset)
        ]


def test_the_first_moment_is_in_and_the_last_one_out_and_windows_that_meet_hold_each_record_once() -> None:
    scenario = Scenario()
    for number in range(12):
        scenario.put(600.0 * number, f"{number}a", f"{number}b")
    scenario.api.time.seconds = 4 * HOUR
    assert scenario.read(1800, 3600) == ["3a", "3b", "4a", "4b", "5a", "5b"]
    borders = [-10, 0, 300, 601, 1800, 1800.001, 5400, 3 * HOUR]
    windows = [scenario.read(begin, until) for begin, until in pairwise(borders)]
    assert [data for window in windows for data in window] == [f"{n}{which}" for n in range(12) for which in "ab"]


def test_where_nothing_arrived_between_the_moments_nothing_is_read() -> None:
    scenario = Scenario()
    scenario.put(10, "early")
    scenario.put(5 * HOUR, "late")
    assert scenario.read(HOUR, 2 * HOUR) == []
    assert scenario.read(6 * HOUR, 7 * HOUR) == []
    empty = Scenario()
    empty.api.time.seconds = HOUR
    assert empty.read(0, 60) == []


def test_the_last_record_is_found_however_long_before_the_last_moment_it_arrived() -> None:
    scenario = Scenario()
    scenario.put(10, "first", "last")
    for seconds in (30, 200, 2 * HOUR, 20 * HOUR):
        scenario.api.time.seconds = seconds
        assert scenario.read(5, seconds) == ["first", "last"], seconds


def test_shards_that_were_split_are_read_as_far_as_they_are_within_the_window() -> None:
    scenario = Scenario()
    scenario.put(0, "parent 0")
    scenario.put(600, "parent 600")
    scenario.api.halve(SHARD, *CHILDREN)
    scenario.landed[SHARD] = SHARD_END
    for seconds in (1200, 1800):
        for shard in CHILDREN:
            scenario.put(seconds, f"{shard[-1]} {seconds}", shard=shard)
    scenario.api.time.seconds = HOUR
    assert scenario.read(300, 1500) == ["parent 600", "1 1200", "2 1200"]
    assert scenario.read(1500, 3000) == ["1 1800", "2 1800"]


@pytest.mark.parametrize("shard", [SHARD, CHILDREN[1]])
def test_a_backfill_does_not_begin_before_all_of_it_has_landed(shard: str) -> None:
    scenario = Scenario()
    scenario.put(0, "parent")
    scenario.api.halve(SHARD, *CHILDREN)
    scenario.landed = {SHARD: SHARD_END, CHILDREN[0]: 0}
    if shard == SHARD:
        scenario.landed[SHARD] = 0
    else:
        scenario.put(60, "child", shard=shard, lands=False)
    scenario.api.time.seconds = HOUR
    with pytest.raises(NotBackfilled, match=f"records have not landed yet: of {shard}. Ask again once they have"):
        scenario.read(0, 300)
    scenario.landed[shard] = SHARD_END
    assert scenario.read(0, 300) == (["parent"] if shard == SHARD else ["parent", "child"])


def test_a_record_that_has_not_landed_and_arrived_at_the_last_moment_or_later_keeps_nothing_back() -> None:
    scenario = Scenario()
    scenario.put(0, "landed")
    scenario.put(600, "of the next window", lands=False)
    scenario.api.time.seconds = HOUR
    assert scenario.read(0, 600) == ["landed"]


def test_what_may_have_passed_the_retention_is_never_left_out_in_silence() -> None:
    scenario = Scenario()
    scenario.put(0, "expired")
    scenario.put(20 * HOUR, "retained")
    scenario.api.time.seconds = 30 * HOUR
    scenario.api.expire_by_age()
    oldest = at(6 * HOUR)
    with pytest.raises(NotBackfilled, match=f"before {oldest:%Y-%m-%dT%H:%M:%SZ} has passed its retention"):
        scenario.read(0, 25 * HOUR)
    assert scenario.read(6 * HOUR, 25 * HOUR) == ["retained"]


def test_a_stream_that_is_younger_than_its_retention_is_read_from_its_beginning() -> None:
    scenario = Scenario()
    scenario.put(0, "first")
    scenario.api.time.seconds = HOUR
    scenario.api.created = at(-60)
    assert scenario.read(-timedelta(days=30).total_seconds(), 600) == ["first"]
