"""The ranges of a backfill that only its process can look up: once, before it is recorded, in what the stream has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from exactlyonce.launch.backfill import BackfillOrder, BackfillRefused, order_between, order_of_named, planned
from exactlyonce.ledger.other_tables import OtherTable
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions
from exactlyonce.schema.moment import Moments
from exactlyonce_spark.backfill_plan import RangesOfSession, chosen_spans
from tests.ledgers import IDS, P0, P1, STREAM, started
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.simulation.source import MemoryTopic

MOMENTS = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
ORDER = order_between("january", "orders_v2", *MOMENTS, rows="these rows")
GIVEN = NamedSpan("orders", "0", "after 1", "after 6")
BY_HAND = order_of_named("by-hand", "orders_v2", [GIVEN], rows="these rows")
SPAN = OffsetRange(2, 7)


class Looks:
    """Counts how often somebody looks for what a backfill is of."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def ranges(self) -> RangesOfSession:
        """What a session's reader answers."""
        return RangesOfSession(self._between, self._given)

    def _given(self, stands: Positions, given: Sequence[NamedSpan]) -> Mapping[Partition, tuple[OffsetRange, ...]]:
        self.count += 1
        assert (stands, tuple(given)) == (Positions({P0: 0, P1: 0}), (GIVEN,))
        return {P0: (SPAN,)}

    def _between(self, stands: Positions, moments: Moments) -> Mapping[Partition, tuple[OffsetRange, ...]]:
        self.count += 1
        assert (stands, moments) == (Positions({P0: 0, P1: 0}), MOMENTS)
        return {P0: (SPAN,)}


def world() -> tuple[MemoryLedger, MemoryTopic]:
    ledger = MemoryLedger(MemoryDatabase())
    started(ledger)
    return ledger, MemoryTopic({P0: 10, P1: 10}, topic_id=IDS[P0.origin])


@pytest.mark.parametrize("order", [ORDER, BY_HAND], ids=["by time", "by hand"])
def test_what_a_backfill_is_of_is_looked_up_until_it_is_recorded_and_never_again(order: BackfillOrder) -> None:
    (ledger, topic), looks = world(), Looks()
    for _ in ("a process that died before it recorded anything", "the next one"):
        spans = chosen_spans(ledger, STREAM, order, looks.ranges)
        assert list(spans) == [(P0, SPAN)]
    made = planned(ledger, topic, STREAM, order, OtherTable("orders_v2"), spans)
    assert [(row.partition, row.from_offset, row.until_offset) for row in made.parts] == [(P0, 2, 7)]
    assert (chosen_spans(ledger, STREAM, order, looks.ranges), looks.count) == ({}, 2)


def test_what_is_found_in_a_source_that_was_created_again_since_the_stream_read_it_is_refused() -> None:
    ledger, topic = world()
    topic.recreate(P0.origin)
    topic.ends |= {P0: 10, P1: 10}
    with pytest.raises(BackfillRefused, match="orders was deleted and created again"):
        planned(
            ledger, topic, STREAM, ORDER, OtherTable("orders_v2"), chosen_spans(ledger, STREAM, ORDER, Looks().ranges)
        )
