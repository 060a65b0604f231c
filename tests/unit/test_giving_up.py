"""What a range that was given up says, and what of it comes back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from exactlyonce.ledger.giving_up import GivenUp, given_up, taken_back
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber
from tests.ledgers import P0

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("alice", "no sink takes it"),
        ("alice", "nobody needs it. It had failed: see ticket 7"),
        ("alice It had failed: ", " It had failed:  It had failed: "),
    ],
)
def test_the_error_that_comes_back_is_the_one_that_the_range_had_whatever_a_person_wrote(by: str, message: str) -> None:
    row = FailureRow(
        BatchNumber(1),
        P0,
        10,
        20,
        FailureStatus.QUARANTINED,
        "b",
        "it fails. It had failed: once",
        origin_id="i",
        life="l",
    )
    assert taken_back(given_up(row, GivenUp(by, NOON, message))) == row
