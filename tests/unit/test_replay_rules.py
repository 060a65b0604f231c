"""What a replay may do with a range in quarantine: told from its row, and from what the source says. No I/O."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.ledger.replay_rules import (
    Gone,
    Held,
    OfAnother,
    Piece,
    SourceFacts,
    claimed,
    finding_of,
    is_held,
    next_chunk,
    parted,
    why_not,
)
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import ZERO_ORIGIN_ID, Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Partition

LIFE = "life-1"
FIRST, SECOND = Partition("orders", 0), Partition("orders", 1)
LAST = Fingerprint(19, "digest of 19", 1_000)


def row_of(partition: Partition = FIRST, start: int = 10, until: int = 20, batch: int = 7) -> FailureRow:
    return FailureRow(
        BatchNumber(batch),
        partition,
        start,
        until,
        FailureStatus.QUARANTINED,
        "broker:9092",
        "it failed",
        origin_id="topic-1",
        fingerprint=LAST,
        life=LIFE,
    )


def facts(earliest: int = 0, origin_id: str = "topic-1", found: Fingerprint | None = LAST) -> SourceFacts:
    return SourceFacts({FIRST: earliest}, {"orders": origin_id}, {FIRST: found})


@pytest.mark.parametrize("status", [FailureStatus.QUARANTINED, FailureStatus.REPLAYING])
def test_what_is_in_quarantine_may_be_replayed_whichever_replay_had_it_before(status: FailureStatus) -> None:
    assert why_not(replace(row_of(), status=status, replay="another"), LIFE) is None


@pytest.mark.parametrize(
    "status",
    [
        FailureStatus.OPEN,
        FailureStatus.CLOSED,
        FailureStatus.LOST,
        FailureStatus.SUPERSEDED,
        FailureStatus.REPLAYED,
    ],
)
def test_what_is_not_in_quarantine_is_refused_with_its_id_and_status(status: FailureStatus) -> None:
    assert f"range 7/orders-0/10 is {status}" in (why_not(replace(row_of(), status=status), LIFE) or "")


def test_a_range_of_another_life_of_the_stream_is_refused() -> None:
    assert "before the stream started over" in (why_not(row_of(), "life-2") or "")


def test_a_range_is_held_only_as_it_was_claimed() -> None:
    mine = claimed(row_of(), "mine")
    assert is_held(mine, mine, LIFE)
    others = {
        "absent": None,
        "of another replay": replace(mine, replay="another"),
        "replayed": replace(mine, status=FailureStatus.REPLAYED),
        "read again": replace(mine, status=FailureStatus.SUPERSEDED),
        "shorter": replace(mine, until_offset=19),
        "of another topic": replace(mine, origin_id="topic-2"),
    }
    assert [how for how, found in others.items() if is_held(found, mine, LIFE)] == []
    assert not is_held(mine, mine, "life-2")


def test_a_range_that_lands_in_part_leaves_the_rest_claimed_and_both_hold_each_record_once() -> None:
    mine = claimed(row_of(), "mine")
    done, rest = parted(Piece(mine, 13), FailureStatus.REPLAYED)
    assert (done.from_offset, done.until_offset, done.status) == (10, 13, FailureStatus.REPLAYED)
    assert (rest.from_offset, rest.until_offset, rest.status, rest.replay) == (13, 20, FailureStatus.REPLAYING, "mine")
    assert (done.fingerprint, rest.fingerprint) == (None, LAST), "the last record goes with the rest"
    assert not done.overlaps(rest)
    assert parted(Piece(mine, 20), FailureStatus.REPLAYED) == (replace(mine, status=FailureStatus.REPLAYED),)


def test_what_is_put_back_is_nobodys_and_says_what_it_failed_with() -> None:
    (back,) = parted(Piece(claimed(row_of(), "mine"), 20), FailureStatus.QUARANTINED, "it failed again")
    assert back == replace(row_of(), error="it failed again")


def test_chunks_are_of_the_earliest_batch_with_one_range_of_each_partition_and_no_more_than_asked_for() -> None:
    rows = [
        row_of(batch=9),
        row_of(SECOND, 5, 9),
        row_of(FIRST, 30, 40),
        row_of(FIRST, 10, 20),
    ]
    pieces = next_chunk(rows, 12)
    assert [(piece.row.batch, piece.row.partition, piece.row.from_offset, piece.until_offset) for piece in pieces] == [
        (7, FIRST, 10, 20),
        (7, SECOND, 5, 7),
    ]
    assert next_chunk([], 12) == ()


def test_a_range_of_one_record_comes_behind_those_that_may_never_have_been_tried() -> None:
    rows = [row_of(FIRST, 5, 6), row_of(FIRST, 10, 20), row_of(SECOND, 3, 4)]
    assert [piece.row.from_offset for piece in next_chunk(rows, 12)] == [10, 3]
    assert [piece.row.from_offset for piece in next_chunk([rows[0], rows[2]], 12)] == [5, 3]


def test_a_range_that_the_source_holds_is_held() -> None:
    assert finding_of(row_of(), facts(earliest=10)) == Held()


def test_what_retention_took_is_gone_up_to_the_earliest_record_and_no_further() -> None:
    assert finding_of(row_of(), facts(earliest=14)) == Gone(14)
    assert finding_of(row_of(), facts(earliest=500, found=None)) == Gone(20)


def test_a_topic_with_another_id_is_refused_by_both_names_even_where_nothing_of_the_range_is_left() -> None:
    for earliest in (0, 500):
        found = finding_of(row_of(), facts(earliest=earliest, origin_id="topic-2"))
        assert isinstance(found, OfAnother)
        assert "topic-1" in found.words
        assert "topic-2" in found.words


def test_another_last_record_is_refused_but_not_one_that_compaction_took() -> None:
    other = replace(LAST, digest="another")
    found = finding_of(row_of(), facts(found=other))
    assert isinstance(found, OfAnother)
    assert "quarantine" not in found.words, "it may be a part of a backfill"
    assert isinstance(finding_of(row_of(), facts(found=None)), OfAnother)
    assert finding_of(row_of(), replace(facts(found=None), compacted=frozenset({"orders"}))) == Held()


def test_without_an_id_and_without_a_fingerprint_nothing_tells_which_records_those_are() -> None:
    nameless = replace(row_of(), origin_id=ZERO_ORIGIN_ID)
    assert finding_of(nameless, facts(origin_id=ZERO_ORIGIN_ID)) == Held(), "the last record is the one that was kept"
    assert isinstance(finding_of(replace(nameless, fingerprint=None), facts(origin_id=ZERO_ORIGIN_ID)), OfAnother)
    assert finding_of(replace(row_of(), fingerprint=None), facts()) == Held(), "the id is the one that was kept"
