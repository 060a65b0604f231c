"""Which leases a stream may write: its own ones, and those from which it has started. Everybody else's stay as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.connectors.kinesis.lease_marks import MOST_STREAMS, Mark, attributes_of, mark_in, marked_by, name_of
from exactlyonce.connectors.kinesis.lease_rights import Other, not_own
from exactlyonce.connectors.kinesis.leases import Checkpoint, Lease, item_of, lease_of
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.source.port import ShownStream

A, B, C = (f"shardId-{number:012d}" for number in range(3))
STREAM = ShownStream("shop/orders", "system 7 database 5", "0123456789abcdef")
NAME = name_of(STREAM)
FORMER = name_of(replace(STREAM, life="former"))
OTHER = name_of(replace(STREAM, stream_id="shop/returns"))
START, END, AT_5 = Checkpoint("TRIM_HORIZON"), Checkpoint("SHARD_END"), Checkpoint("5", 0)


def lease(checkpoint: Checkpoint, *streams: str, written: Checkpoint | None = None, key: str = A) -> Lease:
    """Return a lease with the mark of streams, the latest first, that wrote `written`, by default what stands there."""
    mark = Mark(streams, (written or checkpoint).text) if streams else None
    return Lease(key, checkpoint, mark=mark)


def others(*found: Lease, landed: dict[str, int] | None = None, took_over: bool = False) -> dict[str, Other]:
    """Return what is not the stream's, which has landed everything behind record 9 of the first shard."""
    positions = {A: position_after_record(9)} if landed is None else landed
    listed = {A: None, B: None}
    return not_own({each.key: each for each in found}, positions, listed, NAME, took_over=took_over)


def test_what_the_stream_has_written_is_its_own_until_somebody_moves_it() -> None:
    assert others(lease(AT_5, NAME)) == {}
    assert others(lease(Checkpoint("5", 1), NAME, written=AT_5)) == {A: Other.MOVED_ON}
    assert others(replace(lease(AT_5, NAME), owner="worker", counter=99)) == {}, (
        "who has only held it has moved nothing"
    )


def test_a_checkpoint_that_an_application_has_prepared_counts_as_moved() -> None:
    assert others(replace(lease(AT_5, NAME), is_prepared=True)) == {A: Other.MOVED_ON}


def test_what_an_earlier_life_of_the_stream_has_left_is_its_own_unless_an_application_went_on_since() -> None:
    assert others(lease(AT_5, FORMER)) == {}
    assert others(lease(Checkpoint("6", 0), FORMER, written=AT_5)) == {A: Other.APPLICATION}


def test_nobody_elses_lease_is_its_own() -> None:
    assert others(lease(AT_5)) == {A: Other.APPLICATION}
    assert others(lease(START)) == {A: Other.APPLICATION}, "of an application that has not begun"
    assert others(lease(AT_5, OTHER)) == {A: Other.STREAM}
    assert others(lease(Checkpoint("6", 0), OTHER, written=AT_5)) == {A: Other.APPLICATION}


@pytest.mark.parametrize("streams", [(), (OTHER,), (FORMER,)])
def test_a_stream_that_has_started_from_the_table_may_write_what_is_not_ahead_of_what_has_landed(
    streams: tuple[str, ...],
) -> None:
    inside = {A: UserRecord(9, 3).position}
    for checkpoint, is_ahead in [
        (START, False),
        (AT_5, False),
        (Checkpoint("LATEST"), False),
        (Checkpoint("9", 2), False),
        (Checkpoint("9", 3), True),
        (Checkpoint("10", 0), True),
        (END, True),
        (Checkpoint("AT_TIMESTAMP"), True),
    ]:
        moved = lease(checkpoint, *streams, written=Checkpoint("1", 0))
        assert bool(others(moved, landed=inside, took_over=True)) == is_ahead, checkpoint
    assert others(lease(END, *streams, written=AT_5), landed={A: SHARD_END}, took_over=True) == {}


def test_a_stream_never_takes_back_what_was_taken_over_from_it() -> None:
    taken = lease(AT_5, OTHER, NAME)
    assert others(taken) == others(taken, took_over=True) == {A: Other.SUCCESSOR}


def test_a_stream_that_has_started_from_the_table_leaves_alone_what_an_application_has_moved_since() -> None:
    assert others(lease(AT_5, NAME, written=Checkpoint("3", 0)), took_over=True) == {A: Other.MOVED_ON}


def test_shards_that_an_application_has_begun_alone_are_ahead_of_the_stream() -> None:
    own = lease(AT_5, NAME)
    assert others(own, lease(AT_5, key=B), took_over=True) == {B: Other.APPLICATION}
    assert others(own, lease(START, key=B), took_over=True) == {}
    assert others(own, lease(END, key=C), took_over=True) == {}, "of a shard that expired before the stream began"


def test_a_lease_that_an_application_has_made_beside_own_ones_and_not_begun_changes_nothing() -> None:
    own = lease(AT_5, NAME)
    assert others(own, lease(START, key=B)) == {}
    assert others(own, lease(AT_5, key=B)) == {B: Other.APPLICATION}
    assert others(own, lease(START, OTHER, key=B)) == {B: Other.STREAM}


def test_a_shard_that_everybody_has_read_to_its_end_is_in_nobodys_way() -> None:
    own, landed = lease(AT_5, NAME), {A: position_after_record(9), B: SHARD_END}
    assert others(own, lease(END, OTHER, key=B), landed=landed) == {}
    assert others(own, lease(END, OTHER, key=B), landed={**landed, B: TRIM_HORIZON}) == {B: Other.STREAM}


def test_streams_of_one_name_in_two_databases_are_two_streams() -> None:
    elsewhere = name_of(replace(STREAM, ledger="system 8 database 5", life="another"))
    assert others(lease(AT_5, elsewhere)) == {A: Other.STREAM}


def test_a_lease_names_those_from_which_it_was_taken_over_the_latest_first_and_not_for_ever() -> None:
    mark = marked_by(NAME, marked_by(OTHER, marked_by(NAME, None, "1:0"), "2:0"), "3:0")
    assert mark == Mark((NAME, OTHER), "3:0")
    for number in range(100):
        mark = marked_by(f"stream {number}", mark, "4:0")
    assert len(mark.streams) == MOST_STREAMS


def test_a_mark_is_read_as_it_was_written() -> None:
    made = replace(lease(AT_5, NAME, OTHER), hash_keys=(0, 9))
    assert lease_of(item_of(made)) == made


@pytest.mark.parametrize(
    "change",
    [
        {"exactlyonceStreams": {"S": NAME}},
        {"exactlyonceStreams": {"L": []}},
        {"exactlyonceStreams": {"L": [{"N": "1"}]}},
        {"exactlyonceStreams": {"L": [{"S": "x" * 1000}]}},
        {"exactlyonceStreams": {"L": [{"S": "x"}] * 5}},
        {"exactlyonceStreams": {"L": [{"S": None}]}},
        {"exactlyonceCheckpoint": {"N": "5"}},
        {"exactlyonceCheckpoint": None},
    ],
)
def test_what_no_stream_would_write_is_no_mark(change: dict[str, object]) -> None:
    assert mark_in({**attributes_of(Mark((NAME,), "5:0")), **change}) is None


def test_a_mark_names_the_stream_and_neither_its_token_nor_its_database() -> None:
    stream_id, ledger, life = NAME.split()
    assert (stream_id, len(ledger), life) == ("shop/orders", 16, STREAM.life)
    assert "system" not in NAME
