"""Starts at the newest record and at a moment: what arrives while they are looked for, how far is read back, how long."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from exactlyonce.connectors.kinesis.positions import SHARD_END, position_after_record
from exactlyonce.connectors.kinesis.reading import ShardReader
from exactlyonce.connectors.kinesis.start import _START_SECONDS
from exactlyonce.errors import SourceUnreachable
from exactlyonce.positions.ranges import Partition, Positions
from tests.kinesis_api import SHARD, START_SECONDS, STREAM, KinesisApi, bounds_of, client_of

ONLY = Partition(STREAM, SHARD)


@pytest.fixture
def api() -> KinesisApi:
    return KinesisApi()


def started(api: KinesisApi, **start: Any) -> Positions:
    asked = bounds_of(api, **start)
    return asked.start(asked.view())


def at(seconds: float) -> dict[str, str]:
    return {"from": "Timestamp", "timestamp": datetime.fromtimestamp(START_SECONDS + seconds, UTC).isoformat()}


def read_from(api: KinesisApi, position: int) -> list[bytes]:
    return [record.data for record in ShardReader(client_of(api, api.time), STREAM, SHARD, position).fetch().records]


class PutBefore:
    """Puts a record before a given call of GetShardIterator or GetRecords, counted together."""

    def __init__(self, api: KinesisApi, call: int) -> None:
        self._left, self.data = call, f"before call {call}".encode()
        for name in ("get_shard_iterator", "get_records"):
            setattr(api, name, self._counted(api, getattr(api, name)))

    @property
    def is_to_come(self) -> bool:
        return self._left > 0

    def _counted(self, api: KinesisApi, made: Any) -> Any:
        def call(**arguments: Any) -> Any:
            self._left -= 1
            if not self._left:
                api.time.seconds += 1
                api.put(self.data)
            return made(**arguments)

        return call


@pytest.mark.parametrize("call", range(1, 14))
@pytest.mark.parametrize("before", [[], [b"long before"]])
def test_a_record_that_arrives_while_a_moment_is_looked_for_is_read(
    api: KinesisApi, call: int, before: list[bytes]
) -> None:
    api.put(*before)
    api.time.seconds += 3 * 24 * 3600.0
    arriving = PutBefore(api, call)
    found = started(api, **at(api.time.seconds))
    api.put(b"later")
    expected = [b"later"] if arriving.is_to_come else [arriving.data, b"later"]
    assert read_from(api, found[ONLY]) == expected, "and nothing from before the moment"


def test_a_moment_behind_all_records_starts_behind_the_last_one_before_it(api: KinesisApi) -> None:
    for seconds in (0.0, 30.0, 4000.0):
        api.time.seconds = 100_000.0 + seconds
        (last,) = api.put(b"before")
    api.time.seconds = 200_000.0
    assert started(api, **at(150_000.0)) == Positions({ONLY: position_after_record(last)})


def test_the_newest_record_is_found_without_reading_all_that_came_before_it(api: KinesisApi) -> None:
    for hour in range(48):
        api.time.seconds = hour * 3600.0
        numbers = api.put(*[b"old"] * 100)
    api.time.seconds += 30.0
    numbers = api.put(b"new")
    assert started(api, **{"from": "Latest"}) == Positions({ONLY: position_after_record(numbers[-1])})
    assert api.calls["get_records"] < 60, "about 35 pages hold the last minute"


def test_the_newest_record_of_a_shard_that_has_been_idle_for_months_is_found(api: KinesisApi) -> None:
    (number,) = api.put(b"old")
    api.time.seconds += 100 * 24 * 3600.0
    assert started(api, **{"from": "Latest"}) == Positions({ONLY: position_after_record(number)})
    assert api.calls["get_shard_iterator"] == 4, "a minute, 5, an hour; then all that a retention of a day leaves"


def test_the_newest_record_is_believed_after_more_than_one_look(api: KinesisApi) -> None:
    numbers = api.put(*[b"x"] * 9)

    def as_if_newest(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "MillisBehindLatest": 0}

    api.mangled = [as_if_newest, as_if_newest]
    assert started(api, **{"from": "Latest"}) == Positions({ONLY: position_after_record(numbers[-1])})


def test_a_shard_that_is_split_while_its_newest_record_is_looked_for_is_at_its_end(api: KinesisApi) -> None:
    api.put(*[b"x"] * 5)

    def split(answer: dict[str, Any]) -> dict[str, Any]:
        api.close_shard()
        return answer

    api.mangled = [split]
    assert started(api, **{"from": "Latest"}) == Positions({ONLY: SHARD_END})


def test_producers_that_are_faster_than_kinesis_is_read_do_not_hold_the_pass(api: KinesisApi) -> None:
    def more(answer: dict[str, Any]) -> dict[str, Any]:
        api.time.seconds += 0.5
        api.put(*[b"more"] * 5)
        return {**answer, "MillisBehindLatest": 60_000}

    api.mangled = [more] * 5000
    began = api.time.seconds
    with pytest.raises(SourceUnreachable, match=f"took too long to answer: the newest record of shard {SHARD}"):
        started(api, **{"from": "Latest"})
    assert api.time.seconds - began < _START_SECONDS + 60


def test_the_shards_are_listed_once_for_a_first_start(api: KinesisApi) -> None:
    api.put(b"x")
    started(api, **{"from": "Latest"})
    assert api.calls["list_shards"] == 1
