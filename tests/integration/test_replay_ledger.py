"""The transactions of a replay over real ledgers: Postgres, and an object log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from exactlyonce.cli.local_stream import choose_stream, open_stream
from exactlyonce.connectors.object_log.fleet import ObjectLogFleet
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.connectors.postgres.fleet import PostgresFleet
from exactlyonce.launch.asked_ranges import Amount, AskedRange, tally, tally_given
from exactlyonce.ledger.connector import LedgerFleet, OpenLedger
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.ledger.given_ranges import take_up
from exactlyonce.ledger.history import FailureSummary
from exactlyonce.ledger.letters import SetBacksUnknown
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.publish import Adoption, adopt
from exactlyonce.ledger.replay import RangeNotHeld, ReplayClaim, claim_ranges, give_up, land_pieces, put_back
from exactlyonce.ledger.replay_rules import Piece, RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from testbed.postgres import Postgres
from tests.conftest import address_of
from tests.ledgers import LAST_IN_QUARANTINE, P0, P1, STREAM, in_quarantine, ledger_on, new_stream, started
from tests.resource_documents import document
from tests.simulation.objects import MemoryObjects

MINE, OTHER = ReplayClaim(STREAM, "mine"), ReplayClaim(STREAM, "another")


@pytest.fixture(params=["postgres", "object log"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Iterator[Ledger]:
    if request.param == "postgres":
        yield ledger_on(request.getfixturevalue("postgres_18"), name)
        return
    changes = {
        "spec.sink": {"files": {"path": str(tmp_path / "lake")}},
        "spec.checkpoint": {"local": {"path": str(tmp_path / "checkpoint")}},
    }
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(document(changes)))
    opened = open_stream(choose_stream(file, None), tmp_path / "state", tmp_path).ledger
    opened.prepare()
    yield opened


def kept(ledger: Ledger) -> list[tuple[object, ...]]:
    with ledger.transaction() as transaction:
        rows = [row for status in FailureStatus for row in transaction.read_failures(STREAM, status)]
    return sorted((str(row.partition), row.from_offset, row.until_offset, str(row.status), row.replay) for row in rows)


def test_a_range_lands_in_parts_and_each_part_has_its_own_end(ledger: Ledger) -> None:
    keys = [RangeKey.of(row) for row in in_quarantine(ledger)]
    claimed = claim_ranges(ledger, MINE, [*keys, RangeKey(BatchNumber(9), P0, 0)])
    assert claimed.refused == ("The range 9/orders-0/0 is not in quarantine.",)
    first, second = claimed.rows
    assert (first.fingerprint, first.origin_id) == (LAST_IN_QUARANTINE, "id-1")

    give_up(ledger, MINE, Piece(first, 12), "retention took it")
    rest = replace(first, from_offset=12)
    assert land_pieces(ledger, MINE, [Piece(rest, 15), Piece(second, 20)], lambda _: 8) == 8
    rest = replace(first, from_offset=15)
    put_back(ledger, MINE, Piece(rest, 16), "it failed again")
    assert kept(ledger) == [
        ("orders-0", 10, 12, "Lost", "mine"),
        ("orders-0", 12, 15, "Replayed", "mine"),
        ("orders-0", 15, 16, "Quarantined", ""),
        ("orders-0", 16, 20, "Replaying", "mine"),
        ("orders-1", 10, 20, "Replayed", "mine"),
    ]
    view = ledger.view(STREAM)
    assert view is not None
    assert dict(view.landed.positions) == {P0: 0, P1: 0}, "the stream stands where it stood"


def test_what_became_of_given_ranges_is_counted_by_the_ledger_and_what_is_held_comes_one_by_one(
    ledger: OpenLedger,
) -> None:
    rows = in_quarantine(ledger)
    first, second = claim_ranges(ledger, MINE, [RangeKey.of(row) for row in rows]).rows
    for until in (12, 14, 16):
        piece = Piece(replace(first, from_offset=until - 2), until)
        land_pieces(ledger, MINE, [piece], lambda _: 2)
    for until in (17, 18):
        put_back(ledger, MINE, Piece(replace(first, from_offset=until - 1), until), "it failed again")
    counted = (FailureStatus.QUARANTINED, FailureStatus.REPLAYING, FailureStatus.REPLAYED, FailureStatus.LOST)
    asked = [AskedRange.of(rows[0])]
    parts = ledger.parts_of(STREAM, counted, asked, 100)
    assert [(it.partition, it.from_offset, it.until_offset, it.status) for it in parts] == [
        (P0, 10, 16, FailureStatus.REPLAYED),
        (P0, 16, 17, FailureStatus.QUARANTINED),
        (P0, 17, 18, FailureStatus.QUARANTINED),
        (P0, 18, 20, FailureStatus.REPLAYING),
    ]
    assert tally(asked, parts).records == Amount(asked=10, replayed=6, put_back=4)
    assert ledger.parts_of(STREAM, counted, asked, 2) == parts[:2]
    assert ledger.parts_of(STREAM, counted, [replace(asked[0], batch=BatchNumber(9))], 100) == ()
    assert ledger.parts_of(STREAM, counted, [], 100) == ()
    assert [ledger.replayed_records(*it) for it in ((STREAM, MINE.token), (STREAM, "another"), ("else", ""))] == [
        6,
        0,
        0,
    ]
    assert second.status is FailureStatus.REPLAYING


@pytest.mark.parametrize(
    ("partition", "width"),
    [(Partition("/lake/incoming", 0), 1 << 224), (Partition("orders", "shardId-000000000007"), 1 << 186)],
)
def test_what_became_of_a_range_whose_positions_count_no_records_is_told_by_its_parts(
    ledger: OpenLedger, partition: Partition, width: int
) -> None:
    kafka = in_quarantine(ledger)[0]
    row = replace(kafka, partition=partition, from_offset=3 * width, until_offset=9 * width + 1, fingerprint=None)
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (row,))
    (claimed,) = claim_ranges(ledger, MINE, [RangeKey.of(row)]).rows
    for until in (5 * width + 2, 6 * width):
        land_pieces(ledger, MINE, [Piece(claimed, until)], lambda _: 1)
        claimed = replace(claimed, from_offset=until)
    put_back(ledger, MINE, Piece(claimed, 7 * width), "it failed again")
    counted = (FailureStatus.QUARANTINED, FailureStatus.REPLAYING, FailureStatus.REPLAYED, FailureStatus.LOST)
    asked = [AskedRange.of(row)]
    parts = ledger.parts_of(STREAM, counted, asked, 100)
    assert [(it.partition, it.from_offset, it.status) for it in parts] == [
        (partition, 3 * width, FailureStatus.REPLAYED),
        (partition, 6 * width, FailureStatus.QUARANTINED),
        (partition, 7 * width, FailureStatus.REPLAYING),
    ]
    assert tally(asked, parts).ranges == Amount(asked=1, replayed=0, put_back=1)
    claimed = replace(claimed, from_offset=7 * width)
    land_pieces(ledger, MINE, [Piece(claimed, claimed.until_offset)], lambda _: 1)
    (left,) = claim_ranges(ledger, MINE, [RangeKey(row.batch, partition, 6 * width)]).rows
    land_pieces(ledger, MINE, [Piece(left, left.until_offset)], lambda _: 1)
    assert tally(asked, ledger.parts_of(STREAM, counted, asked, 100)).ranges == Amount(asked=1, replayed=1)


@pytest.mark.parametrize("kind", ["postgres", "object log"])
def test_what_a_replay_makes_of_ranges_is_what_the_monitor_is_told(
    kind: str, request: pytest.FixtureRequest, name: str
) -> None:
    ledger, fleet = monitored(kind, request, name)
    before = datetime.now(UTC).timestamp()
    first, second = claim_ranges(ledger, MINE, [RangeKey.of(row) for row in in_quarantine(ledger)]).rows
    give_up(ledger, MINE, Piece(first, 12), "retention took it")
    rest = replace(first, from_offset=12)
    land_pieces(ledger, MINE, [Piece(rest, 15), Piece(second, 20)], lambda _: 8)
    put_back(ledger, MINE, Piece(replace(first, from_offset=15), 16), "it failed again")
    with ledger.transaction() as transaction:
        failed = replace(second, batch=BatchNumber(9), from_offset=40, until_offset=47, status=FailureStatus.OPEN)
        transaction.write_failures(STREAM, (failed,))
    told = fleet.landed("exactlyonce", {STREAM: None})[STREAM]
    assert (told.open_ranges, told.failed_records, told.lost_ranges, told.lost_records) == (1, 7, 1, 2)
    assert (told.quarantined_ranges, told.quarantined_records) == (2, 5), "one is put back, and the rest still claimed"
    assert (told.replayed_ranges, told.replayed_records, told.letters_held) == (2, 13, 0)
    assert told.quarantined_since is not None
    assert abs(told.quarantined_since - before) < 60
    fleet.close()


def monitored(kind: str, request: pytest.FixtureRequest, name: str) -> tuple[Ledger, LedgerFleet]:
    """Return a ledger and how the monitor asks it."""
    if kind == "postgres":
        server: Postgres = request.getfixturevalue("postgres_18")
        return ledger_on(server, name), PostgresFleet(address_of(server, name))
    store = MemoryObjects()
    log = ObjectLog(store, "ledger")
    made = ObjectLogLedger(log)
    made.prepare()
    return made, ObjectLogFleet(log, store, "lake")


def test_what_is_in_quarantine_is_counted_and_listed_with_no_more_than_is_asked_for(ledger: OpenLedger) -> None:
    in_quarantine(ledger)
    held = (FailureStatus.QUARANTINED, FailureStatus.REPLAYING)
    long_ago, far_off = datetime(2020, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
    summed = ledger.summed_failures(STREAM, held, (long_ago, far_off))
    assert summed.records_since == (20, 0)
    assert summed.oldest is not None
    assert ledger.summed_failures(STREAM, (FailureStatus.LOST,), (long_ago,)) == FailureSummary(None, (0,))
    assert ledger.kept_failures(STREAM, held, [BatchNumber(1), BatchNumber(2)], 10) == ()
    found = ledger.kept_failures(STREAM, held, [BatchNumber(2), BatchNumber(3)], 10)
    assert [it.row.error for it in found] == ["it failed", "it failed"]
    assert {it.row.error for it in ledger.kept_failures(STREAM, held, None, 10, 2)} <= {"it", "it failed"}


def test_what_became_of_given_ranges_is_summed_over_all_failed_ranges_of_a_stream(ledger: OpenLedger) -> None:
    started(ledger)
    made = [
        FailureRow(BatchNumber(2), P0, 2 * at, 2 * at + 2, status, "broker", "it failed", replay=by)
        for at, (status, by) in enumerate(
            [
                (FailureStatus.REPLAYED, "mine-1"),
                (FailureStatus.REPLAYED, "another"),
                (FailureStatus.LOST, ""),
                (FailureStatus.QUARANTINED, ""),
                (FailureStatus.LOST, ""),
                (FailureStatus.GIVEN_UP, ""),
            ]
        )
    ]
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (*made, replace(made[2], partition=P1)))
    asked = [AskedRange.given(P0, OffsetRange(*span)) for span in ((1, 7), (7, 20))]
    counted = (FailureStatus.QUARANTINED, FailureStatus.REPLAYED, FailureStatus.LOST, FailureStatus.GIVEN_UP)
    found = ledger.overlaps_of(STREAM, counted, asked, "mine-")
    assert sorted((it.partition, it.from_offset, str(it.status), it.records) for it in found) == [
        (P0, 1, "Lost", 2),
        (P0, 1, "Quarantined", 1),
        (P0, 1, "Replayed", 1),
        (P0, 7, "GivenUp", 2),
        (P0, 7, "Lost", 2),
        (P0, 7, "Quarantined", 1),
    ]
    told = tally_given(asked, found).records
    assert told == Amount(asked=19, replayed=1, put_back=2, lost=6)
    assert ledger.overlaps_of("another/stream", counted, asked, "") == ()
    assert ledger.overlaps_of(STREAM, counted, (), "") == ()


def test_a_part_of_what_a_reset_has_skipped_is_taken_up_and_landed_and_given_again_it_is_refused(
    ledger: Ledger,
) -> None:
    rows = in_quarantine(ledger)
    with ledger.transaction() as transaction:
        transaction.set_positions(STREAM, LandedPositions(Positions({P0: 100, P1: 100}), {"orders": "id-1"}))
        lost = replace(rows[0], batch=BatchNumber(4), from_offset=40, until_offset=60, status=FailureStatus.LOST)
        transaction.write_failures(STREAM, (lost,))
    given = Ranges({P0: OffsetRange(45, 50)})
    if isinstance(ledger, ObjectLogLedger):
        with pytest.raises(SetBacksUnknown, match="does not record the positions to which the stream was set back"):
            take_up(ledger, STREAM, given, None)
        return
    (part,) = take_up(ledger, STREAM, given, None).rows
    assert take_up(ledger, STREAM, given, None).rows == (part,), "a command that was killed is given again"
    (claimed,) = claim_ranges(ledger, MINE, [RangeKey.of(part)]).rows
    land_pieces(ledger, MINE, [Piece(claimed, 50)], lambda _: 5)
    (refused,) = take_up(ledger, STREAM, given, None).refused
    assert "a replay has landed 4/orders-0/45" in refused
    with ledger.transaction() as transaction:
        left = transaction.read_failures(STREAM, FailureStatus.LOST)
    assert [(row.from_offset, row.until_offset) for row in left] == [(40, 45), (50, 60)]


def test_of_two_replays_the_later_one_lands_a_range_and_the_earlier_one_writes_nothing(ledger: Ledger) -> None:
    keys = [RangeKey.of(row) for row in in_quarantine(ledger)]
    mine = claim_ranges(ledger, MINE, keys).rows
    others = claim_ranges(ledger, OTHER, keys).rows
    written: list[str] = []

    def write(name: str) -> int:
        written.append(name)
        return 1

    with pytest.raises(RangeNotHeld, match="another replay has taken it"):
        land_pieces(ledger, MINE, [Piece(mine[0], 20)], lambda _: write("mine"))
    assert land_pieces(ledger, OTHER, [Piece(others[0], 20)], lambda _: write("another")) == 1
    with pytest.raises(RangeNotHeld):
        land_pieces(ledger, OTHER, [Piece(others[0], 20)], lambda _: write("another, again"))
    assert written == ["another"]


def test_a_stream_that_has_started_over_takes_no_replay_of_what_was_quarantined_before(ledger: Ledger) -> None:
    rows = in_quarantine(ledger)
    claimed = claim_ranges(ledger, MINE, [RangeKey.of(rows[0])]).rows
    stream = new_stream(ledger)
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    adopt(ledger, STREAM, Epoch(2), Adoption(stream.owner, stream.database, "token-2"))
    with pytest.raises(RangeNotHeld):
        land_pieces(ledger, MINE, [Piece(claimed[0], 20)], lambda _: 1)
    refused = claim_ranges(ledger, OTHER, [RangeKey.of(row) for row in rows]).refused
    assert [words for words in refused if "before the stream started over" in words] == list(refused)
    assert len(refused) == 2
