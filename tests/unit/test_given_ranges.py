"""Which ranges that a person gives may be landed: what a reset has skipped, and nothing that has landed or will."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.cli.given_ranges import RangesUnreadable, given_ranges, named_spans, taken_from
from exactlyonce.ledger.given_ranges import Standing, Taken, take_up, taken_of
from exactlyonce.ledger.letters import SetBack
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.ledger.room import TooMuchInQuarantine
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Positions, Ranges
from exactlyonce.reconcile.between_times import ranges_between
from exactlyonce.source.connector import SourceCheck
from tests.ledgers import P0, P1, STREAM, started
from tests.resource_documents import document
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.simulation.source import MemoryTopic

if TYPE_CHECKING:
    from exactlyonce.cli.local_stream import LocalStream

LAST = Fingerprint(199, "digest", None, 0)
SKIPPED = FailureRow(
    BatchNumber(7), P0, 100, 200, FailureStatus.LOST, "memory", "skipped by a reset", origin_id="id-1",
    fingerprint=LAST, life="life-1",
)  # fmt: skip
STANDING = Standing("life-1", Positions({P0: 500, P1: 500}), (SKIPPED,), ())


def taken(begin: int, end: int, standing: Standing = STANDING, partition: Partition = P0) -> Taken:
    return taken_of(standing, Ranges({partition: OffsetRange(begin, end)}))


def told(rows: tuple[FailureRow, ...]) -> list[tuple[int, int, str, bool]]:
    return [(row.from_offset, row.until_offset, str(row.status), row.fingerprint is not None) for row in rows]


@pytest.mark.parametrize(
    ("begin", "end", "changed"),
    [
        (100, 200, [(100, 200, "Quarantined", True)]),
        (100, 150, [(100, 150, "Quarantined", False), (150, 200, "Lost", True)]),
        (150, 200, [(100, 150, "Lost", False), (150, 200, "Quarantined", True)]),
        (
            120,
            150,
            [(100, 120, "Lost", False), (120, 150, "Quarantined", False), (150, 200, "Lost", True)],
        ),
    ],
)
def test_of_what_was_skipped_the_given_part_goes_into_quarantine_and_the_rest_stays_lost(
    begin: int, end: int, changed: list[tuple[int, int, str, bool]]
) -> None:
    found = taken(begin, end)
    assert told(found.changed) == changed
    assert [(row.from_offset, row.until_offset) for row in found.rows] == [(begin, end)]
    assert found.refused == ()


def test_what_stands_beside_it_is_refused_part_by_part() -> None:
    found = taken(50, 600)
    assert [(row.from_offset, row.until_offset) for row in found.rows] == [(100, 200)]
    assert found.refused == (
        "orders-0 [50, 100) has landed, or lies before the stream's start: no failure says that the stream continued "
        "without it.",
        "orders-0 [200, 600) ends beyond 500, where the stream stands: it will land what is there itself.",
    )


def test_a_range_that_ends_where_the_stream_stands_lies_behind_it() -> None:
    (words,) = taken(200, 500).refused
    assert words.startswith("orders-0 [200, 500) has landed, or lies before the stream's start")


def test_a_range_that_an_earlier_command_has_taken_up_is_continued() -> None:
    held = replace(SKIPPED, status=FailureStatus.REPLAYING, replay="another")
    found = taken(100, 200, replace(STANDING, rows=(held,)))
    assert (found.rows, found.changed, found.refused) == ((held,), (), ())
    part = taken(100, 150, replace(STANDING, rows=(held,)))
    assert part.rows == ()
    assert part.refused == (
        "orders-0 [100, 150) is a part of what is in quarantine: replay 7/orders-0/100 in whole, by its id.",
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (replace(SKIPPED, status=FailureStatus.REPLAYED), "a replay has landed 7/orders-0/100"),
        (replace(SKIPPED, life=""), "nothing says that its records have not landed"),
        (replace(SKIPPED, life="life-0"), "nothing says that its records have not landed"),
        (replace(SKIPPED, origin_gone=True), "nothing says that its records have not landed"),
    ],
)
def test_what_may_have_landed_is_refused(row: FailureRow, words: str) -> None:
    found = taken(100, 200, replace(STANDING, rows=(row,)))
    assert (found.rows, found.changed) == ((), ())
    assert words in found.refused[0]


@pytest.mark.parametrize(
    ("set_back", "refused"),
    [
        (SetBack(P0, 150, "id-1", BatchNumber(9)), True),
        (SetBack(P0, 200, "id-1", BatchNumber(9)), False),
        (SetBack(P0, 150, "id-1", BatchNumber(6)), False),
        (SetBack(P1, 150, "id-1", BatchNumber(9)), False),
    ],
    ids=str,
)
def test_what_the_stream_has_read_again_since_is_refused(set_back: SetBack, refused: bool) -> None:
    assert bool(taken(100, 200, replace(STANDING, set_backs=(set_back,))).refused) is refused


def test_a_partition_that_the_stream_does_not_read_is_refused() -> None:
    found = taken(0, 5, partition=Partition("returns", 3))
    assert found.refused == (
        "returns-3 [0, 5) is of a partition that the stream does not read, or has landed nothing of.",
    )


def test_it_is_put_into_quarantine_in_one_transaction_and_no_more_than_may_be_there() -> None:
    ledger = MemoryLedger(MemoryDatabase())
    given = Ranges({P0: OffsetRange(0, 4)})
    with pytest.raises(NothingToReplayInto):
        take_up(ledger, STREAM, given, None)
    started(ledger)
    view = ledger.view(STREAM)
    assert view is not None
    lost = replace(SKIPPED, from_offset=0, until_offset=10, fingerprint=None, life=view.stream.life)
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost,))
    with pytest.raises(TooMuchInQuarantine, match="4 records would be in quarantine"):
        take_up(ledger, STREAM, given, 3)
    for _ in range(2):
        found = take_up(ledger, STREAM, given, 4)
        assert [(row.from_offset, row.until_offset, str(row.status)) for row in found.rows] == [(0, 4, "Quarantined")]
    with ledger.transaction() as transaction:
        assert transaction.read_failures(STREAM, FailureStatus.QUARANTINED) == found.rows
        (rest,) = transaction.read_failures(STREAM, FailureStatus.LOST)
    assert (rest.from_offset, rest.until_offset) == (4, 10)


@pytest.mark.parametrize(("on_poison_batch", "is_bounded"), [("Halt", False), ("Quarantine", True), ("Bisect", True)])
def test_no_more_is_taken_up_than_a_stream_that_quarantines_may_have_there(
    on_poison_batch: str, is_bounded: bool
) -> None:
    """Else the next batch that fails would halt the stream, which may not have more in quarantine."""
    ledger = MemoryLedger(MemoryDatabase())
    started(ledger)
    view = ledger.view(STREAM)
    assert view is not None
    with ledger.transaction() as transaction:
        transaction.set_positions(STREAM, LandedPositions(Positions({P0: 500, P1: 500}), {"orders": "id-1"}))
        transaction.write_failures(STREAM, (replace(SKIPPED, life=view.stream.life),))
    recovery = {"onPoisonBatch": on_poison_batch, "maxQuarantined": 3}
    stream = parse_stream(document({"spec.recovery": recovery}), "a test")
    opened = cast("LocalStream", SimpleNamespace(ledger=ledger, stream=stream))
    asked = (
        ['{"orders":{"0":[100,102]}}', '{"orders":{"0":[102,104]}}']
        if not is_bounded
        else ['{"orders":{"0":[100,104]}}']
    )
    if is_bounded:
        with pytest.raises(TooMuchInQuarantine, match=r"recovery.maxQuarantined \(3\)"):
            taken_from(opened, asked, _opens_nothing, yes=True)
    else:
        assert len(taken_from(opened, asked, _opens_nothing, yes=True).rows) == 2


def _opens_nothing(source: object) -> SourceCheck:
    raise AssertionError("positions need no source")


@pytest.mark.parametrize("text", ["", "[]", '{"orders":{"0":5}}', '{"orders":{"0":[7,5]}}', '{"orders":{"0":[5,5]}}'])
def test_what_names_no_ranges_is_refused_with_the_form_that_does(text: str) -> None:
    with pytest.raises(RangesUnreadable, match="such as"):
        given_ranges(text)


def test_ranges_are_written_as_the_ledger_writes_them() -> None:
    assert given_ranges('{"orders":{"0":[100,200]}}') == Ranges({P0: OffsetRange(100, 200)})


def test_what_lies_between_two_moments_ends_where_the_stream_stands() -> None:
    asked: list[object] = []

    class ByTime(MemoryTopic):
        def start(self, view: object, only: object = None) -> Positions:
            return Positions({P0: 40 * len(asked), P1: 5})

    def opened(source: object) -> MemoryTopic:
        asked.append(source)
        return ByTime({P0: 900, P1: 900})

    source = parse_stream(document({}), "a test").spec.source
    moments = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    assert ranges_between(*moments, Positions({P0: 60, P1: 60}), source, opened) == Ranges({P0: OffsetRange(40, 60)})


def test_ranges_whose_positions_are_texts_are_told_from_numbers_and_from_what_is_neither() -> None:
    texts = ('{"orders": {"shard-1": ["TRIM_HORIZON", "after 7"]}}', '{"orders":{"shard-2":[ "9:2","SHARD_END"]}}')
    assert named_spans(texts) == (
        NamedSpan("orders", "shard-1", "TRIM_HORIZON", "after 7"),
        NamedSpan("orders", "shard-2", "9:2", "SHARD_END"),
    )
    assert named_spans(('{"orders":{"0":[100,200]}}',)) == ()
    for wrong in (
        ('{"orders":{"0":["1",2]}}',),
        ('{"orders":{"0":["1"]}}',),
        ('{"orders":["1","2"]}',),
        ('{"orders":{"0":["1","2"]}',),
        (texts[0], '{"orders":{"0":[100,200]}}'),
        ('{"orders":{"a":["1","2"],"b":["1","2"]}}', '{"orders":{"0":[100,200]}}'),
    ):
        with pytest.raises(RangesUnreadable, match=r"--ranges names no ranges \(.+\); write the first position"):
            named_spans(wrong)
