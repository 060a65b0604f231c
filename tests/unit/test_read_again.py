"""What becomes of ranges in quarantine where the stream is set to a position: those that it reads again leave it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.ledger.read_again import read_again
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.fingerprint import ZERO_ORIGIN_ID, Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Positions
from tests.ledgers import P0, P1

HELD = FailureRow(
    BatchNumber(3),
    P0,
    10,
    20,
    FailureStatus.QUARANTINED,
    "brokers",
    "it fails",
    origin_id="id-1",
    fingerprint=Fingerprint(19, "digest"),
    life="life-1",
)


def at(position: int, origin_id: str = "id-1") -> LandedPositions:
    return LandedPositions(Positions({P0: position}), {"orders": origin_id})


def again(
    held: list[FailureRow], after: LandedPositions, known_ids: dict[str, str] | None = None
) -> tuple[FailureRow, ...]:
    return read_again(held, after, known_ids or {})


@pytest.mark.parametrize("position", [0, 9, 10])
def test_a_range_that_is_read_again_is_superseded(position: int) -> None:
    assert again([HELD], at(position)) == (replace(HELD, status=FailureStatus.SUPERSEDED),)


@pytest.mark.parametrize("position", [20, 21, 500])
def test_a_range_before_the_position_stays(position: int) -> None:
    assert again([HELD], at(position)) == ()


@pytest.mark.parametrize("position", [11, 19])
def test_of_a_range_that_the_position_divides_only_the_part_that_is_read_again_is_superseded(position: int) -> None:
    kept, superseded = again([HELD], at(position))
    assert kept == replace(HELD, until_offset=position, fingerprint=None)
    assert superseded == replace(HELD, from_offset=position, status=FailureStatus.SUPERSEDED)


@pytest.mark.parametrize("position", [0, 15, 500])
def test_a_range_of_a_topic_that_was_replaced_is_lost_wherever_the_stream_stands_in_the_new_one(position: int) -> None:
    (lost,) = again([HELD], at(position, "id-2"))
    assert (lost.status, lost.origin_gone) == (FailureStatus.LOST, True)
    assert lost.error == "orders was replaced before these records were replayed. They had failed: it fails"


def test_a_range_of_a_replaced_topic_is_lost_also_where_the_new_one_has_fewer_partitions() -> None:
    (lost,) = again([HELD], LandedPositions(Positions({P1: 0}), {"orders": "id-2"}))
    assert lost.status is FailureStatus.LOST


@pytest.mark.parametrize("ids", [("", "id-2"), ("id-1", ""), (ZERO_ORIGIN_ID, "id-2"), ("id-1", ZERO_ORIGIN_ID)])
def test_without_two_ids_the_position_alone_decides(ids: tuple[str, str]) -> None:
    row = replace(HELD, origin_id=ids[0])
    assert again([row], at(20, ids[1])) == ()
    assert again([row], at(10, ids[1])) == (replace(row, status=FailureStatus.SUPERSEDED),)


def test_a_partition_that_is_not_read_any_more_keeps_its_ranges() -> None:
    assert again([HELD], LandedPositions(Positions({P1: 0}), {"orders": "id-1"})) == ()


def test_what_a_replay_has_begun_to_read_is_superseded_as_well_so_that_it_cannot_land() -> None:
    row = replace(HELD, status=FailureStatus.REPLAYING, replay="nightly")
    assert again([row], at(0)) == (replace(row, status=FailureStatus.SUPERSEDED),)


@pytest.mark.parametrize("named", ["", ZERO_ORIGIN_ID])
def test_a_row_that_names_no_topic_is_of_the_one_that_the_ledger_knew_and_lost_with_it(named: str) -> None:
    row = replace(HELD, origin_id=named)
    (lost,) = again([row], at(0, "id-2"), {"orders": "id-1"})
    assert (lost.status, lost.origin_gone) == (FailureStatus.LOST, True)
    assert again([row], at(0, "id-1"), {"orders": "id-1"}) == (replace(row, status=FailureStatus.SUPERSEDED),)


def test_a_row_that_names_its_topic_is_not_of_the_one_that_the_ledger_knew_last() -> None:
    assert again([HELD], at(20, "id-1"), {"orders": "id-2"}) == ()
