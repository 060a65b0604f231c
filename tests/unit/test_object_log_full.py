"""A log that is full refuses what would fill it further, by name and before it is written, and is emptied all the same."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any

import pytest

from exactlyonce.checkpoint.store import CreateOutcome
from exactlyonce.connectors.object_log.bounds import BOUNDS, NOTHING, LogFull
from exactlyonce.connectors.object_log.documents import Entry, Snapshot
from exactlyonce.connectors.object_log.state import Key, LedgerState, Stand, StoredBatch, StoredFailure, Table, rest_of
from exactlyonce.errors import LedgerUnreachable, StoreUnreachable
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.room import KEPT, TooMuchInQuarantine
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce_spark.left_out import NotToBeQuarantined
from tests.ledgers import STREAM
from tests.lives_over_logs import FULL, SMALL, LogLife
from tests.object_logs import snapshots

SEEDS = 25
STEPS = 50


def rows_of(life: LogLife) -> dict[Any, Any]:
    """All rows of the log but those that a snapshot may move, as a new process reads them."""
    state = life.process()._log.fold().state
    kept = state.everything().items()
    return {key: row for key, row in kept if key.table not in (Table.COMMITTABLE, Table.ARCHIVE)}


def largest(life: LogLife) -> int:
    return max(map(len, life.store.objects.values()))


def test_batches_that_fail_once_in_many_partitions_and_land_later_never_fill_a_log() -> None:
    """At this hundredth of the size it held some 27 such batches: then nothing could be written to it, or deleted from it."""
    bounds = replace(
        BOUNDS, object_bytes=BOUNDS.object_bytes // 100, folded_bytes=BOUNDS.folded_bytes // 100,
        values=BOUNDS.values // 100, ended_ranges=BOUNDS.ended_ranges // 100, batch_ranges=BOUNDS.batch_ranges // 100,
    )  # fmt: skip
    life = LogLife(10, bounds, every=20)
    sizes = []
    for number in range(1, 61):
        life.fail("e" * 2000)
        life.take_over()
        life.land()
        life.now += timedelta(minutes=10)
        assert life.landed == number
        sizes.append(sum(map(len, life.store.objects.values())))
    assert max(sizes[30:]) < 1.2 * max(sizes[:30]), "it grows no further"
    assert len({row.batch for row in life.rows(FailureStatus.CLOSED)}) >= 2, "the latest ones are told"


def test_an_error_stands_once_in_each_object_however_many_partitions_it_failed() -> None:
    life = LogLife(40, BOUNDS, every=3)
    error = "no such column: colour"
    for _ in range(3):
        life.fail(error)
        life.land()
    told = [content.count(error.encode()) for content in life.store.objects.values()]
    assert snapshots(life.store)
    assert set(told) == {0, 1}
    life.ledger = life.process()
    rows = life.rows(FailureStatus.CLOSED)
    assert len(rows) == 120
    assert {row.error for row in rows} == {error}


def test_a_long_error_is_cut_in_its_middle_where_it_is_kept() -> None:
    life = LogLife(2, BOUNDS)
    life.fail(f"it began here {'x' * 100_000} and this is the cause")
    errors = {row.error for row in life.rows(FailureStatus.OPEN)}
    assert [(len(it), it[:14], it[-17:]) for it in errors] == [(20_000, "it began here ", "this is the cause")]


def test_a_batch_is_not_quarantined_where_the_log_has_no_room_and_giving_up_makes_some() -> None:
    life = LogLife(4)
    life.quarantine()
    life.quarantine()
    before = rows_of(life)
    with pytest.raises(NotToBeQuarantined) as told:
        life.quarantine("the last error")
    assert str(told.value) == (
        "Batch 3 failed too often and is not quarantined: the ledger would hold 12 ranges in quarantine, more than the 8 that "
        "it has room for; replay what is in quarantine or give it up (`exactlyonce failures give-up`), and set "
        "ledgerRetention.lostFailures.age, after which ranges that are lost or given up are deleted; or fix what fails. Then "
        "start the stream again. The last error: the last error"
    )
    assert rows_of(life) == before
    life.give_up_all()
    life.quarantine()
    life.quarantine()
    life.give_up_all()
    with pytest.raises(
        NotToBeQuarantined, match="hold 20 ranges that are in quarantine, lost or given up, more than the 16"
    ):
        life.quarantine()
    life.delete()
    life.quarantine()
    assert len(life.rows(*HELD)) == 4


def test_a_replay_makes_room_as_well() -> None:
    life = LogLife(4)
    life.quarantine()
    life.quarantine()
    life.replayed(life.rows(*HELD))
    life.quarantine()
    life.land()
    assert len(life.rows(*KEPT)) == 4


def test_errors_that_have_no_room_are_refused_as_ranges_are() -> None:
    life = LogLife(1)
    life.quarantine("a" * 3000)
    with pytest.raises(NotToBeQuarantined, match=r"hold 60\d\d bytes of the errors of such ranges, more than the 4000"):
        life.quarantine("b" * 3000)
    life.quarantine("a" * 3000)


def test_a_generation_that_skips_more_than_the_log_has_room_for_is_not_published() -> None:
    life = LogLife(4)
    for _ in range(4):
        life.lose()
    before, landed = rows_of(life), life.landed
    with pytest.raises(
        TooMuchInQuarantine, match=r"^No generation of shop/orders .* hold 20 ranges .* Nothing was changed"
    ):
        life.lose()
    assert life.landed == landed
    assert {key for key in rows_of(life) if key.table is Table.FAILURE} == {
        key for key in before if key.table is Table.FAILURE
    }
    life.land()
    life.delete()
    life.lose()


def test_what_no_rule_has_asked_about_is_refused_by_the_log_itself() -> None:
    life = LogLife(4)
    for _ in range(4):
        life.lose()
    extra = replace(life.rows(FailureStatus.LOST)[0], from_offset=900, until_offset=901)
    with pytest.raises(TooMuchInQuarantine, match="Nothing was written"), life.ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (extra,))
    assert len(life.rows(FailureStatus.LOST)) == 16


def read_another_partition(life: LogLife) -> None:
    """Land a batch that reads one more."""
    before = life.positions
    life.positions = Positions({**before, Partition("x" * 300, len(before)): 0})
    try:
        life.land()
    except FULL:
        life.positions = before
        raise


def filled(life: LogLife) -> LogLife:
    """Fill a log to where it takes no further partition."""
    with pytest.raises(LogFull, match=r"has no room for an entry of \d+ bytes: .* nothing was written"):
        deque(map(read_another_partition, repeat(life, 1000)), maxlen=0)
    return life


def test_an_epoch_is_raised_and_claimed_and_ranges_are_given_up_and_deleted_over_a_log_that_takes_no_batch() -> None:
    life = LogLife(4)
    life.quarantine()
    life.quarantine()
    filled(life)
    for _ in range(5):
        life.take_over()
    life.give_up_all()
    life.take_over()
    life.delete()
    assert life.rows(*KEPT) == ()
    assert largest(life) <= SMALL.object_bytes


def test_who_takes_over_a_full_log_does_not_need_a_snapshot_that_the_store_does_not_take() -> None:
    life = filled(LogLife(4))
    create = life.store.create

    def no_snapshot(path: str, content: bytes) -> CreateOutcome:
        if path.endswith(".snapshot"):
            raise StoreUnreachable("no answer")
        return create(path, content)

    life.store.create = no_snapshot  # type: ignore[method-assign]
    life.take_over()
    with pytest.raises((LogFull, LedgerUnreachable)):
        read_another_partition(life)
    life.take_over()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_from_every_state_that_a_log_allows_it_is_taken_over_and_emptied_and_goes_on(seed: int) -> None:
    dice = random.Random(seed)
    life = LogLife(dice.randint(1, 4), every=dice.choice([3, 10, 50]))
    refused = 0
    for _ in range(STEPS):
        before = rows_of(life)
        told = refusal_of(life.draw(dice))
        if told is not None:
            refused += 1
            assert "give-up" in told
            changed = {key for key, row in rows_of(life).items() if before.get(key) != row}
            assert not {key for key in changed if key.table in (Table.POSITION, Table.FAILURE)}, told
        if dice.random() < 0.1:
            _empty(life)
    _empty(life)
    assert refused or seed not in (0, 1), "such logs are full now and then"


def refusal_of(act: Callable[[], None]) -> str | None:
    """Return what says that there is no room; None where there was."""
    try:
        act()
    except FULL as problem:
        return str(problem)
    return None


def _empty(life: LogLife) -> None:
    """What a person and an operator do about a full log."""
    life.take_over()
    life.give_up_all("nobody needs it " * 60)
    life.take_over()
    life.delete()
    with suppress(*FULL):  # what is of the landed batch goes after the next one
        life.land()
    life.delete()
    assert len(life.rows(*KEPT)) == 0
    assert len(life.rows(*FailureStatus)) <= SMALL.ended_ranges + len(life.positions)
    assert largest(life) <= SMALL.object_bytes
    life.land()
    life.quarantine()
    life.land()


def test_the_bounds_leave_room_for_the_widest_entry_of_a_stream_of_5000_partitions() -> None:
    """The sums that `Bounds` tells, of the content that is written: each failed range alone in its batch, the worst of them."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    partitions = [Partition("orders", number) for number in range(5000)]
    mark = Fingerprint(10**9, "0" * 32, 1_700_000_000_000, 100)
    wide = Ranges({key: OffsetRange(10**9, 10**9 + 500) for key in partitions})

    def failed(
        batch: int, key: Partition, status: FailureStatus, held: datetime | None = now
    ) -> tuple[Key, StoredFailure]:
        told = f"error {batch}" if held is not None else "an error"
        row = FailureRow(
            BatchNumber(batch), key, 10**9, 10**9 + 500, status, "b" * 200, told, False, "i" * 22, mark, "l" * 16, ""
        )
        return Key(Table.FAILURE, STREAM, (row.batch, *rest_of(key), row.from_offset)), StoredFailure(row, now, 1, held)

    def landed(batch: int, ranges: Ranges) -> tuple[Key, StoredBatch]:
        row = BatchRow(BatchNumber(batch), Epoch(9), BatchStatus.LANDED, ranges, 10**6, 10**6, 0, "", now)
        return Key(Table.BATCH, STREAM, (batch,)), StoredBatch(row, now)

    one = Ranges({partitions[0]: OffsetRange(10**9, 10**9 + 500)})
    stands = {Key(Table.POSITION, STREAM, rest_of(key)): Stand(10**9, "i" * 22, mark) for key in partitions}
    state = LedgerState().after(
        dict(
            [
                *stands.items(),
                *(landed(batch, one) for batch in range(BOUNDS.batch_ranges // 6)),
                *(landed(20_000 + number, wide) for number in range(5)),
                *(failed(number, partitions[0], FailureStatus.QUARANTINED) for number in range(BOUNDS.room.kept)),
                *(failed(10_000 + n, partitions[0], FailureStatus.REPLAYED) for n in range(BOUNDS.ended_ranges)),
                *(failed(20_000, key, FailureStatus.CLOSED, None) for key in partitions),
                *(failed(20_001, key, FailureStatus.OPEN, None) for key in partitions),
            ]
        )
    )
    widest = dict(
        [
            *stands.items(),
            landed(20_002, wide),
            *(failed(20_001, key, FailureStatus.CLOSED, None) for key in partitions),
            *(failed(20_002, key, FailureStatus.QUARANTINED, None) for key in partitions),
        ]
    )
    weight = NOTHING.and_of(Snapshot(1, "0" * 32, state).render())
    entry = Entry.over(1, "0" * 32, widest).render()
    assert BOUNDS.refusal(weight, entry, widest, "here") is None
    twice = weight.and_of(entry)
    assert BOUNDS.refusal(twice, entry, widest, "here") is not None, "the sums are not idle"
    held = [failed(number, partitions[0], FailureStatus.GIVEN_UP) for number in range(BOUNDS.room.held)]
    full = replace(weight, values=int(BOUNDS.values * (1 - BOUNDS.reserved)))
    assert BOUNDS.refusal(full, Entry.over(1, "0" * 32, dict(held)).render(), {}, "here", frees=True) is None
