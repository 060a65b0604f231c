"""Which ranges of shards a person may give to a backfill, and what is read of them."""

from __future__ import annotations

import pytest

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.given_ranges import given_ranges
from exactlyonce.connectors.kinesis.reading import read_range
from exactlyonce.errors import NotBackfilled
from exactlyonce.positions.named_spans import NamedSpan
from tests.kinesis_api import SHARD, STREAM, KinesisApi, client_of
from tests.kinesis_in_memory import aggregated

CHILDREN = ("shardId-000000000001", "shardId-000000000002")


@pytest.fixture
def api() -> KinesisApi:
    return KinesisApi(hash_keys={SHARD: (0, (1 << 128) - 1)})


def client(api: KinesisApi) -> KinesisClient:
    return client_of(api, api.time)


def read(api: KinesisApi, begin: str, end: str, shard: str = SHARD, origin: str = STREAM) -> list[str]:
    """Return the data of the records of a range, as a replay reads it."""
    found = given_ranges(client(api), STREAM, STREAM, [NamedSpan(origin, shard, begin, end)])
    return [
        user.data.decode()
        for key, spans in found.items()
        for span in spans
        for user in read_range(client(api), STREAM, f"{key.key}", span.from_offset, span.until_offset)
    ]


def test_a_range_holds_what_lies_behind_its_first_record_up_to_its_last_one(api: KinesisApi) -> None:
    numbers = api.put(*(f"{number}".encode() for number in range(6)))
    assert read(api, f"after {numbers[1]}", f"after {numbers[3]}") == ["2", "3"]
    assert read(api, "TRIM_HORIZON", f"after {numbers[0]}") == ["0"]
    assert read(api, f"after {numbers[3]}", f"after {numbers[5]}") == ["4", "5"], "ranges that meet share no record"
    assert read(api, f"after {numbers[4] - 1}", f"after {numbers[5]}") == ["4", "5"], "as a stream begins at a record"


def test_a_range_may_begin_and_end_inside_of_an_aggregate_and_at_the_end_of_a_shard_that_is_closed(
    api: KinesisApi,
) -> None:
    (first, last) = (*api.put(aggregated(["a", "b", "c"], "key")), *api.put(b"d"))
    assert read(api, f"{first}:1", f"after {last}") == ["b", "c", "d"]
    assert read(api, "TRIM_HORIZON", f"{first}:2") == ["a", "b"]
    api.halve(SHARD, *CHILDREN)
    assert read(api, f"after {first}", "SHARD_END") == ["d"]


def test_what_is_no_range_that_can_be_read_is_named(api: KinesisApi) -> None:
    first, last = api.put(b"a", b"b")
    end = f"after {last}"
    refusals = [
        ("TRIM_HORIZON", f"after {last + 1}", f"The position 'after {last + 1}' of shard {SHARD} does not stand behind a rec"),
        (f"after {first - 2}", end, f"The position 'after {first - 2}' of shard {SHARD} does not stand behind a record"),
        (f"{first}:1", end, f"The position '{first}:1' of shard {SHARD} does not stand behind a record that the shard holds"),
        ("TRIM_HORIZON", "SHARD_END", f"The range of shard {SHARD} ends at SHARD_END, and that shard is open"),
        (end, f"after {first}", "ends where it begins, or before"),
        ("4957", end, "'4957' is not a position in a shard, which is TRIM_HORIZON, SHARD_END, after"),
    ]  # fmt: skip
    for begin, until, words in refusals:
        with pytest.raises(NotBackfilled) as caught:
            read(api, begin, until)
        assert words in str(caught.value)
    with pytest.raises(NotBackfilled, match="names a shard that the data stream does not list"):
        read(api, "TRIM_HORIZON", end, CHILDREN[0])
    with pytest.raises(NotBackfilled, match=f"is of another, and the source is the data stream {STREAM}"):
        read(api, "TRIM_HORIZON", end, origin="another")


def test_from_the_oldest_record_on_is_what_the_shard_holds_when_it_is_asked_for(api: KinesisApi) -> None:
    early, late = api.put(b"early", b"late")
    assert read(api, "TRIM_HORIZON", f"after {late}") == ["early", "late"]
    found = given_ranges(client(api), STREAM, STREAM, [NamedSpan(STREAM, SHARD, "TRIM_HORIZON", f"after {late}")])
    ((span,),) = found.values()
    assert span.from_offset > 0, "another look finds the same range, or that some of it is gone"
    api.expire(1)
    assert read(api, "TRIM_HORIZON", f"after {late}") == ["late"]
    with pytest.raises(NotBackfilled, match=f"'after {early}' of shard {SHARD} does not stand behind a record"):
        read(api, f"after {early}", f"after {late}")
    api.expire(1)
    with pytest.raises(NotBackfilled, match="does not stand behind a record"):
        read(api, "TRIM_HORIZON", f"after {late}")


def test_several_ranges_of_a_shard_are_told_in_their_order(api: KinesisApi) -> None:
    numbers = api.put(*(f"{number}".encode() for number in range(4)))
    spans = [NamedSpan(STREAM, SHARD, f"after {numbers[begin]}", f"after {numbers[begin + 1]}") for begin in (2, 0)]
    ((first, second),) = given_ranges(client(api), STREAM, STREAM, spans).values()
    assert first.until_offset < second.from_offset
