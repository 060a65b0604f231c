"""Since when a log has a range in quarantine: replays that take it and put it back do not make it younger."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from exactlyonce.connectors.object_log.fleet import landed_in
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.ledger.replay import ReplayClaim, claim_ranges, put_back
from exactlyonce.ledger.replay_rules import Piece, RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber
from tests.ledgers import P0, STREAM, started
from tests.simulation.objects import MemoryObjects

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = RangeKey(BatchNumber(3), P0, 10)


class Clock:
    """A clock that a test sets."""

    now = NOON

    def __call__(self) -> datetime:
        return self.now


def test_a_range_that_replays_take_and_put_back_is_in_quarantine_since_it_was_put_there() -> None:
    store, clock = MemoryObjects(), Clock()
    log = ObjectLog(store, "ledger", snapshot_every=3)
    ledger = ObjectLogLedger(log, clock)
    ledger.prepare()
    started(ledger)
    view = ledger.view(STREAM)
    assert view is not None
    row = FailureRow(
        BatchNumber(3), P0, 10, 20, FailureStatus.QUARANTINED, "brokers", "it failed", life=view.stream.life
    )

    def write(status: FailureStatus) -> None:
        with ledger.transaction() as transaction:
            transaction.write_failures(STREAM, (replace(row, status=status),))

    def since() -> datetime | None:
        found = landed_in(log.fold().state, STREAM, None)
        assert found is not None
        return None if found.quarantined_since is None else datetime.fromtimestamp(found.quarantined_since, UTC)

    write(FailureStatus.QUARANTINED)
    for hour in range(1, 4):
        clock.now = NOON + timedelta(hours=hour)
        claim = ReplayClaim(STREAM, f"replay-{hour}")
        (held,) = claim_ranges(ledger, claim, [KEY]).rows
        assert since() == NOON
        put_back(ledger, claim, Piece(held, 20), "it failed again")
        assert since() == NOON
    write(FailureStatus.GIVEN_UP)
    assert since() is None
    write(FailureStatus.QUARANTINED)
    assert since() == clock.now, "it was taken back"


def test_ranges_that_a_replay_has_decided_are_counted_until_they_are_settled() -> None:
    log = ObjectLog(MemoryObjects(), "ledger", snapshot_every=3)
    ledger = ObjectLogLedger(log, Clock())
    ledger.prepare()
    started(ledger)
    row = FailureRow(BatchNumber(3), P0, 10, 20, FailureStatus.REPLAYING, "brokers", "it failed", replay="a token")
    decided = replace(row, from_offset=20, until_offset=30, replay=f"a token{FailureRow.DECIDED}")

    def count(*rows: FailureRow) -> int:
        with ledger.transaction() as transaction:
            transaction.write_failures(STREAM, rows)
        found = landed_in(log.fold().state, STREAM, None)
        assert found is not None
        return found.replay_decided_ranges

    assert count(row) == 0
    assert count(row, decided) == 1
    assert count(replace(decided, status=FailureStatus.REPLAYED)) == 0
