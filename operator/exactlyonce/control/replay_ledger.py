"""What a pass over a StreamReplay asks of the stream's ledger: each call takes a place, and reads a bounded part."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from exactlyonce.api.stream_replay import AskedLetters
from exactlyonce.control.bulkheads import Store
from exactlyonce.control.deadline import NEVER, Deadline
from exactlyonce.launch.asked_letters import LettersLookedAt, letters_looked_at
from exactlyonce.launch.asked_ranges import AskedRange
from exactlyonce.launch.backfill import BackfillOrder
from exactlyonce.ledger.backfills import Backfill
from exactlyonce.ledger.connector import OpenLedger
from exactlyonce.ledger.given_ranges import Standing, bounded_look
from exactlyonce.ledger.history import FailureSummary, Overlap, RecordedFailure
from exactlyonce.ledger.planned_backfills import known_backfill
from exactlyonce.ledger.replay import sink_of_stream
from exactlyonce.ledger.rows import FailureRow, FailureStatus, StreamRow
from exactlyonce.positions.ranges import BatchNumber, Positions
from exactlyonce.reconcile.replay_choice import MOST_LOOKED_AT

_MOST_PARTS, _MOST_CHOSEN_FROM = 10_000, 10_000
_MOST_CHARACTERS = 1000
"""Of an error, which is as long as the tenant's database has it."""
LOOKS_SECONDS = 60.0
"""So long a dry run looks at what may be any number."""


class ReplayLedger(Protocol):
    """What is asked of a ledger: how a stream stands, and its failed ranges."""

    def row(self, stream_id: str) -> StreamRow | None:
        """Return a stream's row, or None where the ledger has none."""
        ...

    def parts_of(
        self, stream_id: str, statuses: Collection[FailureStatus], asked: Sequence[AskedRange]
    ) -> tuple[FailureRow, ...]:
        """Return what became of the ranges that were asked for; what has landed in many parts is one row."""
        ...

    def overlaps_of(
        self, stream_id: str, statuses: Collection[FailureStatus], given: Sequence[AskedRange], by: str
    ) -> tuple[Overlap, ...]:
        """Return how many records of ranges that are given by hand are in failed ranges, by what became of them."""
        ...

    def choice(
        self, stream_id: str, statuses: Collection[FailureStatus], batches: Collection[BatchNumber] | None
    ) -> tuple[RecordedFailure, ...]:
        """Return the earliest failed ranges of these batches, or of all, with the first part of each error; of many not all."""
        ...

    def summed(
        self, stream_id: str, statuses: Collection[FailureStatus], moments: Sequence[datetime]
    ) -> FailureSummary:
        """Return what there is with one of the statuses, and for each moment the records that got theirs after it."""
        ...

    def letters(self, stream_id: str, asked: AskedLetters) -> LettersLookedAt:
        """Return the first of the dead letters that are asked for, without key and value."""
        ...

    def replayed_records(self, stream_id: str, by: str) -> int:
        """Return how many records of failed ranges were landed by replays whose token begins with `by`."""
        ...

    def replayed_letters(self, stream_id: str, by: str) -> int:
        """Return how many dead letters were landed by replays whose token begins with `by`."""
        ...

    def standing(self, stream_id: str) -> Standing:
        """Return what matters for ranges that are given by hand."""
        ...

    def positions(self, stream_id: str) -> Positions | None:
        """Return where the stream stands, None where the ledger has no row of it."""
        ...

    def backfill(self, stream_id: str, order: BackfillOrder, *, was_compared: bool = False) -> Backfill | None:
        """Return what is recorded of a backfill; unless it `was_compared`, one that asks for something else is refused."""
        ...

    def sink(self, stream_id: str) -> str | None:
        """Return what the stream lands into, as its latest driver has recorded; None where that is not known."""
        ...


@dataclass(frozen=True)
class GuardedReplayLedger:
    """A ledger whose calls take a place each, until a deadline.

    Raises, in each call:
        PassTooLong: once that is over.
    """

    opened: OpenLedger
    at: Store
    deadline: Deadline = NEVER

    @contextmanager
    def _entered(self) -> Iterator[None]:
        self.deadline.require()
        with self.at.entered():
            yield

    def row(self, stream_id: str) -> StreamRow | None:
        """Return a stream's row."""
        with self._entered():
            view = self.opened.view(stream_id)
        return None if view is None else view.stream

    def parts_of(
        self, stream_id: str, statuses: Collection[FailureStatus], asked: Sequence[AskedRange]
    ) -> tuple[FailureRow, ...]:
        """Return what became of the ranges that were asked for, counted by the ledger."""
        with self._entered():
            return self.opened.parts_of(stream_id, statuses, asked, _MOST_PARTS)

    def overlaps_of(
        self, stream_id: str, statuses: Collection[FailureStatus], given: Sequence[AskedRange], by: str
    ) -> tuple[Overlap, ...]:
        """Return how many records are in failed ranges, summed by the ledger."""
        with self._entered():
            return self.opened.overlaps_of(stream_id, statuses, given, by)

    def choice(
        self, stream_id: str, statuses: Collection[FailureStatus], batches: Collection[BatchNumber] | None
    ) -> tuple[RecordedFailure, ...]:
        """Return the earliest failed ranges with a part of their errors."""
        with self._entered():
            return self.opened.kept_failures(stream_id, statuses, batches, _MOST_CHOSEN_FROM, _MOST_CHARACTERS)

    def summed(
        self, stream_id: str, statuses: Collection[FailureStatus], moments: Sequence[datetime]
    ) -> FailureSummary:
        """Return what there is, counted by the ledger."""
        with self._entered():
            return self.opened.summed_failures(stream_id, statuses, moments)

    def letters(self, stream_id: str, asked: AskedLetters) -> LettersLookedAt:
        """Return dead letters."""
        with self._entered():
            looks = self.deadline.within(LOOKS_SECONDS)
            return letters_looked_at(self.opened, stream_id, asked, MOST_LOOKED_AT, lambda: not looks.is_over)

    def replayed_records(self, stream_id: str, by: str) -> int:
        """Return how many records some replays have landed."""
        with self._entered():
            return self.opened.replayed_records(stream_id, by)

    def replayed_letters(self, stream_id: str, by: str) -> int:
        """Return how many letters some replays have landed."""
        with self._entered():
            return self.opened.replayed_letters(stream_id, by)

    def standing(self, stream_id: str) -> Standing:
        """Return how the stream stands."""
        with self._entered():
            return bounded_look(self.opened, stream_id, _MOST_CHOSEN_FROM, _MOST_CHARACTERS)

    def positions(self, stream_id: str) -> Positions | None:
        """Return where the stream stands."""
        with self._entered():
            view = self.opened.view(stream_id)
        return None if view is None else view.landed.positions

    def backfill(self, stream_id: str, order: BackfillOrder, *, was_compared: bool = False) -> Backfill | None:
        """Return what is recorded of a backfill."""
        with self._entered():
            return known_backfill(self.opened, stream_id, order.name, None if was_compared else order.definition)

    def sink(self, stream_id: str) -> str | None:
        """Return what the stream lands into."""
        with self._entered():
            return sink_of_stream(self.opened, stream_id)
