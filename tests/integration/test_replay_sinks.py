"""A replay lands only into what the stream lands into, as the stream's latest driver has recorded when it claimed its epoch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.ledger.backfills import OF_NO_BATCH, Backfill
from exactlyonce.ledger.fence import claim_epoch, raise_epoch
from exactlyonce.ledger.letters import LetterRow
from exactlyonce.ledger.planned_backfills import BackfillDiffers, plan_backfill
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.replay import (
    RangeNotHeld,
    ReplayClaim,
    SinkChanged,
    claim_ranges,
    land_pieces,
    put_back,
    sink_of_stream,
)
from exactlyonce.ledger.replay_letters import claim_letters
from exactlyonce.ledger.replay_rules import Piece, RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions
from testbed.postgres import Postgres
from tests.ledgers import P0, P1, STREAM, ledger_on, new_stream, started
from tests.simulation.database import MemoryDatabase, MemoryLedger

MINE = ReplayClaim(STREAM, "mine", "table orders")


@pytest.fixture(params=["postgres", "memory"])
def ledger(request: pytest.FixtureRequest, name: str) -> Ledger:
    if request.param == "memory":
        return MemoryLedger(MemoryDatabase())
    return ledger_on(request.getfixturevalue("postgres_18"), name)


def drive(ledger: Ledger, epoch: int, sink: str | None) -> None:
    """A driver of an epoch claims it, and says what it lands into, or lands where replays do not."""
    raise_epoch(ledger, new_stream(ledger), Epoch(epoch), "ticket")
    claim_epoch(ledger, STREAM, Epoch(epoch), f"claim-{epoch}", "ticket", sink=sink)


def quarantined(ledger: Ledger) -> FailureRow:
    view = ledger.view(STREAM)
    assert view is not None
    row = FailureRow(
        BatchNumber(3), P0, 10, 20, FailureStatus.QUARANTINED, "", "no", origin_id="id-1", life=view.stream.life
    )
    with ledger.transaction() as transaction:
        transaction.set_positions(STREAM, LandedPositions(Positions({P0: 50, P1: 0}), {"orders": "id-1"}))
        transaction.write_failures(STREAM, (row,))
    return row


def _never_called(_: LedgerTransaction) -> int:
    raise AssertionError("rows are written")


def test_a_replay_lands_nothing_from_the_claim_of_a_driver_of_another_sink_on(ledger: Ledger) -> None:
    started(ledger)
    row = quarantined(ledger)
    drive(ledger, 2, "table orders")
    (held,) = claim_ranges(ledger, MINE, [RangeKey.of(row)]).rows
    assert land_pieces(ledger, MINE, [Piece(held, 15)], lambda _: 5) == 5
    rest = replace(held, from_offset=15)
    raise_epoch(ledger, new_stream(ledger), Epoch(3), "ticket")
    assert land_pieces(ledger, MINE, [Piece(rest, 16)], lambda _: 1) == 1, "no driver has another sink yet"
    rest = replace(held, from_offset=16)
    claim_epoch(ledger, STREAM, Epoch(3), "claim-3", "ticket", sink="table orders_new")
    with pytest.raises(SinkChanged, match=r"lands into table orders_new, .* and this replay is for table orders"):
        land_pieces(ledger, MINE, [Piece(rest, 20)], _never_called)
    put_back(ledger, MINE, Piece(rest, 20))
    key = RangeKey.of(rest)
    with pytest.raises(SinkChanged):
        claim_ranges(ledger, MINE, [key])
    letter = LetterRow(("orders", "id-1", 0, 1), P0, 1, "id-1", BatchNumber(3), "malformed", "life")
    with pytest.raises(SinkChanged):
        claim_letters(ledger, MINE, [letter])
    assert len(claim_ranges(ledger, replace(MINE, sink="table orders_new"), [key]).rows) == 1


def test_what_a_driver_has_recorded_counts_until_one_claims_that_records_nothing(ledger: Ledger) -> None:
    started(ledger)
    row = quarantined(ledger)
    drive(ledger, 2, "table orders_new")
    assert sink_of_stream(ledger, STREAM) == "table orders_new"
    drive(ledger, 3, None)
    assert sink_of_stream(ledger, STREAM) is None
    assert len(claim_ranges(ledger, MINE, [RangeKey.of(row)]).rows) == 1


def part(partition: Partition, begin: int, until: int) -> FailureRow:
    mark = Fingerprint(until - 1, "digest", 1_000, 3)
    return FailureRow(
        OF_NO_BATCH,
        partition,
        begin,
        until,
        FailureStatus.QUARANTINED,
        "brokers",
        "",
        origin_id="id-1",
        fingerprint=mark,
    )


def test_a_backfill_is_recorded_once_and_its_parts_land_by_whoever_has_claimed_them_last(ledger: Ledger) -> None:
    started(ledger)
    planned = Backfill("january", "table orders_v2", "asked", (part(P0, 0, 20), part(P1, 3, 5)))
    assert plan_backfill(ledger, STREAM, planned) == planned
    assert plan_backfill(ledger, STREAM, replace(planned, parts=())) == planned
    with pytest.raises(BackfillDiffers):
        plan_backfill(ledger, STREAM, replace(planned, definition="something else"))
    mine, other = (ReplayClaim(STREAM, it, "table orders_v2", "january") for it in ("mine", "another"))
    first, second = claim_ranges(ledger, mine, ()).rows
    assert land_pieces(ledger, mine, [Piece(first, 8), Piece(second, 5)], lambda _: 10) == 10
    rest = replace(first, from_offset=8)
    put_back(ledger, mine, Piece(rest, 9), "it failed")
    rest = replace(first, from_offset=9)
    taken = claim_ranges(ledger, other, ()).rows
    assert {(row.from_offset, row.until_offset) for row in taken} == {(8, 9), (9, 20)}
    with pytest.raises(RangeNotHeld):
        land_pieces(ledger, mine, [Piece(rest, 20)], _never_called)
    for row in taken:
        land_pieces(ledger, other, [Piece(row, row.until_offset)], lambda _: 1)
    with ledger.transaction() as transaction:
        found = transaction.read_backfill(STREAM, "january")
        assert transaction.read_failures(STREAM, FailureStatus.REPLAYED) == (), "they are no failures of the stream"
    assert found is not None
    assert [(str(it.partition), it.from_offset, it.until_offset, str(it.status)) for it in found.parts] == [
        ("orders-0", 0, 20, "Replayed"),
        ("orders-1", 3, 5, "Replayed"),
    ]
    assert [None if it.fingerprint is None else it.fingerprint.offset for it in found.parts] == [19, 4]


def test_a_stream_that_is_forgotten_takes_its_backfills_along(postgres_18: Postgres, name: str) -> None:
    ledger = ledger_on(postgres_18, name)
    started(ledger)
    plan_backfill(ledger, STREAM, Backfill("january", "table orders_v2", "asked", (part(P0, 0, 20),)))
    view = ledger.view(STREAM)
    assert view is not None
    ledger.forget(STREAM, view.stream.owner)
    assert postgres_18.execute("select count(*) from exactlyonce.backfills", name) == [(0,)]
