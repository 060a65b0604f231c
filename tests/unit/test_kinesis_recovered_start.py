"""Where a new stream continues behind the rows of one whose ledger is lost: rows and the rest are each user record once."""

from __future__ import annotations

from typing import Any

import pytest

from exactlyonce.connectors.kinesis.positions import SHARD_END, UserRecord, from_text, position_after_record
from exactlyonce.connectors.kinesis.reading import read_range
from exactlyonce.connectors.kinesis.recovered_start import start_behind
from exactlyonce.connectors.kinesis.shards import GREATEST_HASH_KEY
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.errors import StartInvalid
from exactlyonce.positions.ranges import Partition
from exactlyonce.source.connector import GoesOn
from tests.kinesis_api import SHARD, STREAM, KinesisApi, StoredShard, client_of
from tests.kinesis_in_memory import aggregated

LEFT, RIGHT = "shardId-000000000001", "shardId-000000000002"
HALF = GREATEST_HASH_KEY // 2


def behind(api: KinesisApi, rows: dict[str, UserRecord], stream: str = STREAM) -> GoesOn:
    spec = KinesisSource.model_validate({"streamName": STREAM, "region": "eu-west-1"})
    last = {Partition(stream, shard): record.position for shard, record in rows.items()}
    return start_behind(client_of(api, api.time), spec, last)


def read(api: KinesisApi, shard: str, start: int, end: int) -> list[tuple[int, bytes]]:
    users = read_range(client_of(api, api.time), STREAM, shard, start, end)
    return [(user.record.position, user.data) for user in users]


def split(api: KinesisApi) -> None:
    """Split the only shard in two halves."""
    api.close_shard()
    api.shards |= {LEFT: StoredShard((SHARD,)), RIGHT: StoredShard((SHARD,))}
    api.hash_keys = {LEFT: (0, HALF), RIGHT: (HALF + 1, GREATEST_HASH_KEY)}


def test_behind_any_row_the_rest_of_the_shard_follows_and_nothing_twice_also_within_an_aggregate() -> None:
    api = KinesisApi()
    end = position_after_record(api.put(b"a", aggregated(["b", "c", "d"]), b"e", aggregated(["f", "g"]))[-1])
    everything = read(api, SHARD, 0, end)
    assert [data for _, data in everything] == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    for landed in range(1, len(everything) + 1):
        told = behind(api, {SHARD: UserRecord.at(everything[landed - 1][0])})
        start = from_text(told.start["positions"][SHARD])
        rest = read(api, SHARD, start, end)
        assert everything[:landed] + rest == everything
        assert told.positions == {Partition(STREAM, SHARD): told.start["positions"][SHARD]}
        assert told.notes == ()


def test_a_shard_of_which_a_child_has_rows_was_read_to_its_end_and_is_not_asked_for() -> None:
    api = KinesisApi()
    (first, _) = api.put(b"a", b"left out by the transform")
    split(api)
    (left,) = api.put(b"b", shard=LEFT)
    (right,) = api.put(b"c", shard=RIGHT)
    told = behind(api, {SHARD: UserRecord(first), LEFT: UserRecord(left), RIGHT: UserRecord(right)})
    assert told.start == {"from": "Positions", "positions": {LEFT: f"after {left}", RIGHT: f"after {right}"}}
    assert told.positions[Partition(STREAM, SHARD)] == "SHARD_END"
    assert told.notes == ()


def test_children_without_rows_follow_on_their_parent() -> None:
    api = KinesisApi()
    (number,) = api.put(b"a")
    split(api)
    told = behind(api, {SHARD: UserRecord(number)})
    assert told.start["positions"] == {SHARD: f"after {number}"}
    assert told.notes == ()


def test_a_shard_without_a_row_is_named_since_only_a_person_knows_where_the_stream_began_in_it() -> None:
    api = KinesisApi()
    split(api)
    (left,) = api.put(b"b", shard=LEFT)
    told = behind(api, {LEFT: UserRecord(left)})
    assert told.start["positions"] == {LEFT: f"after {left}"}
    (note,) = told.notes
    assert f"No row is of {RIGHT}: add each of them with the position at which the stream began in it" in note


def test_a_shard_that_expired_is_named_unless_a_child_of_it_has_rows() -> None:
    api = KinesisApi()
    api.shards = {LEFT: StoredShard((SHARD,))}
    (left,) = api.put(b"b", shard=LEFT)
    followed = behind(api, {SHARD: UserRecord(5), LEFT: UserRecord(left)})
    assert followed.notes == ()
    assert followed.start["positions"] == {LEFT: f"after {left}"}
    other = "shardId-000000000007"
    (note,) = behind(api, {other: UserRecord(5), LEFT: UserRecord(left)}).notes
    assert f"Kinesis does not list {other} any more" in note
    assert "nobody can tell whether all of it had landed" in note


@pytest.mark.parametrize("expires", [True, False])
def test_a_last_row_whose_record_is_gone_tells_nothing_and_no_start_is_guessed(expires: bool) -> None:
    api = KinesisApi()
    first, second = api.put(b"a", b"b")
    if expires:
        api.expire(1)
    with pytest.raises(StartInvalid, match="has passed its retention, or the stream was recreated: nobody can tell"):
        behind(api, {SHARD: UserRecord(first if expires else second - 1)})


@pytest.mark.parametrize(
    ("record", "stream", "sentence"),
    [
        (UserRecord(0, 1), STREAM, "it is one of another shard or stream"),
        (UserRecord(5), "invoices", f"The rows are of invoices, and the stream reads {STREAM}"),
    ],
)
def test_rows_of_another_stream_are_refused(record: UserRecord, stream: str, sentence: str) -> None:
    api = KinesisApi()
    api.put(b"a")
    with pytest.raises(StartInvalid, match=sentence):
        behind(api, {SHARD: record}, stream)


def test_the_position_of_a_row_says_which_user_record_it_is() -> None:
    given: Any = UserRecord(49590338271490256608559692538361571095921575989136588898, 3)
    assert UserRecord.at(given.position) == given
    assert given.position < SHARD_END
