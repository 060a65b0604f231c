"""What a replay of dead letters, and of ranges that are given by hand, is protected by, taken away piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.ledger import given_ranges, letters, publish, replay_letters
from exactlyonce.ledger.given_ranges import Standing, Taken
from exactlyonce.ledger.letters import LetterRow, replayed
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Ranges
from exactlyonce_spark import replay_letters as run
from exactlyonce_spark.planned import LeftOut

_OF_NO_BATCH = BatchNumber(1_000_000)


@contextmanager
def a_dead_letter_is_landed_without_being_compared() -> Iterator[None]:
    """A replay lands a dead letter without asking whether the ledger still has it as this replay has claimed it."""

    def lock_alone(transaction: Any, claim: Any, _held: Any) -> None:
        transaction.lock_stream(claim.stream_id, Lock.UPDATE)

    with mock.patch.object(replay_letters, "require_letters_held", lock_alone):
        yield


@contextmanager
def a_setting_back_leaves_dead_letters_as_they_are() -> Iterator[None]:
    """The positions are set back and the ledger does not say from where, so that letters stay which the stream reads again."""
    with mock.patch.object(publish, "set_backs_of", lambda *_: ()):
        yield


@contextmanager
def a_letter_that_a_replay_has_taken_is_not_superseded() -> Iterator[None]:
    """Where the stream was set back is asked when a letter is claimed, and not once more when it lands."""

    def by_the_row(found: LetterRow | None, row: LetterRow, _set_backs: Any) -> bool:
        return letters.is_held_as(found, row, ())

    with mock.patch.object(replay_letters, "is_held_as", by_the_row):
        yield


@contextmanager
def a_dead_letter_is_marked_before_its_row_is_written() -> Iterator[None]:
    """A replay marks dead letters in one transaction and writes their rows in the next one."""
    settle = replay_letters.settle_letters

    def apart(ledger: Any, claim: Any, held: Any, changed: Any, write: Callable[[Any], int] = lambda _: 0) -> int:
        settle(ledger, claim, held, changed)
        with ledger.transaction() as transaction:
            return write(transaction)

    with mock.patch.object(run, "settle_letters", apart):
        yield


@contextmanager
def a_letter_that_is_malformed_again_counts_as_replayed() -> Iterator[None]:
    """A dead letter of which no row could be made is marked as one whose record has landed."""
    with mock.patch.object(run, "kept_on", lambda row, _error=None: replayed(row)):
        yield


@contextmanager
def a_later_letter_counts_as_read_again() -> Iterator[None]:
    """A letter counts as one that the stream reads again, although its batch came after the positions were set back."""

    def of_any_batch(row: LetterRow, it: Any) -> bool:
        return bool(row.partition == it.partition and row.position >= it.position)

    with mock.patch.object(letters, "_is_read_again", of_any_batch):
        yield


@contextmanager
def a_malformed_record_that_is_left_out_is_kept_as_a_letter_too() -> Iterator[None]:
    """A batch that lands without a record keeps a dead letter of it as well, where it is malformed."""
    with mock.patch.object(LeftOut, "without", lambda _self, letters: letters):
        yield


@contextmanager
def a_range_is_taken_up_that_the_stream_has_landed() -> Iterator[None]:
    """A range that somebody gives goes into quarantine as a whole, whatever the ledger says of its records."""

    def whole(standing: Standing, given: Ranges, *_by: str) -> Taken:
        known = next((row for row in standing.rows if row.life), None)
        if known is None:
            return Taken((), (), ())
        part = replace(known, batch=_OF_NO_BATCH, fingerprint=None, status=FailureStatus.QUARANTINED, replay="")
        rows = tuple(
            replace(part, partition=key, from_offset=span.from_offset, until_offset=span.until_offset)
            for key, span in given.non_empty().items()
        )
        return Taken(rows, rows, ())

    with mock.patch.object(given_ranges, "taken_of", whole):
        yield
