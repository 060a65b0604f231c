"""The ledger over an object log: a transaction is a fold, the rules in memory, and one entry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from exactlyonce.connectors.object_log.clearing import clear
from exactlyonce.connectors.object_log.commit import to_commit
from exactlyonce.connectors.object_log.fold import Fold
from exactlyonce.connectors.object_log.log import LogMissing, ObjectLog
from exactlyonce.connectors.object_log.state import Table
from exactlyonce.connectors.object_log.transaction import LogTransaction
from exactlyonce.errors import LedgerUnreachable, StoreUnreachable
from exactlyonce.ledger.history import (
    FailureSummary,
    LetterPlace,
    Overlap,
    RecordedBackfill,
    RecordedFailure,
    RecordedLetter,
    Span,
    Stretch,
    overlaps_within,
    parts_within,
)
from exactlyonce.ledger.letters import LetterKey
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.ledger.room import Room
from exactlyonce.ledger.rows import DatabaseIdentity, FailureRow, FailureStatus, LedgerView, Owner
from exactlyonce.positions.ranges import BatchNumber


class ObjectLogLedger:
    """A `Ledger`. Its transactions wait for nobody, so there is nobody to evict; each commit is on the disk when it returns."""

    def __init__(self, log: ObjectLog, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._log = log
        self._clock = clock
        self.room: Room | None = log.bounds.room

    @contextmanager
    def transaction(
        self, *, evicting: bool = False, lasting: bool = True, dispensable: bool = False
    ) -> Iterator[LogTransaction]:
        """Open a transaction; see `Ledger.transaction`.

        Raises:
            LostRace: from the end of the block, when another transaction was first.
            CommitOutcomeUnknown: from the end of the block, when the store did not answer.
            LogFull, TooMuchInQuarantine: from the end of the block, when there is no room; nothing was written.
        """
        with self._named():
            fold = self._log.fold()
        archived = partial(self._committables, fold)
        transaction = LogTransaction(fold.state, self._clock(), self._log.location, archived, self.room)
        yield transaction
        changes = to_commit(fold.state, transaction.changes, self._log.bounds)
        # Whoever looks under the lock has to be an entry: only that keeps an older request, which is still under way, from
        # becoming this very entry after the look.
        if transaction.is_exclusive or (changes and not dispensable):
            with self._named():
                self._log.append(fold, changes)

    def view(self, stream_id: str) -> LedgerView | None:
        """Return what is committed of a stream; None also where there is no log yet, which a look does not make."""
        with self._named():
            try:
                return self._log.fold().state.view(stream_id)
            except LogMissing:
                return None

    def kept_failures(
        self,
        stream_id: str,
        statuses: Collection[FailureStatus],
        batches: Collection[BatchNumber] | None,
        most: int,
        most_characters: int | None = None,
    ) -> tuple[RecordedFailure, ...]:
        """Return failed ranges, whose errors are in memory as they are."""
        with self._named():
            try:
                rows = self._log.fold().state.rows(Table.FAILURE, stream_id).values()
            except LogMissing:
                return ()
        found = [
            RecordedFailure(kept.row, kept.changed_at) for kept in rows
            if kept.row.status in statuses and (batches is None or kept.row.batch in batches)
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda kept: (kept.row.batch, kept.row.partition, kept.row.from_offset))[:most])

    def parts_of(
        self, stream_id: str, statuses: Collection[FailureStatus], spans: Sequence[Span], most: int
    ) -> tuple[FailureRow, ...]:
        """Return what begins in some spans."""
        found = self.kept_failures(stream_id, statuses, {span.batch for span in spans}, sys.maxsize)
        return parts_within((kept.row for kept in found), spans)[:most]

    def overlaps_of(
        self, stream_id: str, statuses: Collection[FailureStatus], stretches: Sequence[Stretch], by: str
    ) -> tuple[Overlap, ...]:
        """Return how many records are in failed ranges."""
        found = self.kept_failures(stream_id, statuses, None, sys.maxsize)
        return overlaps_within((kept.row for kept in found), stretches, by)

    def summed_failures(
        self, stream_id: str, statuses: Collection[FailureStatus], moments: Sequence[datetime]
    ) -> FailureSummary:
        """Return what there is."""
        found = self.kept_failures(stream_id, statuses, None, sys.maxsize)
        since = (sum(kept.row.offset_count for kept in found if kept.changed_at > moment) for moment in moments)
        return FailureSummary(min((kept.changed_at for kept in found), default=None), tuple(since))

    def kept_letters(
        self, stream_id: str, place: LetterPlace | None, after: LetterKey | None, most: int, most_bytes: int | None
    ) -> tuple[RecordedLetter, ...]:
        """Return none: a log holds none."""
        return ()

    def replayed_records(self, stream_id: str, by: str) -> int:
        """Return how many records some replays have landed."""
        found = self.kept_failures(stream_id, (FailureStatus.REPLAYED,), None, sys.maxsize)
        return sum(kept.row.offset_count for kept in found if kept.row.replay.startswith(by))

    def kept_backfills(self, stream_id: str) -> tuple[RecordedBackfill, ...]:
        """Return none: no other table takes rows beside a log."""
        return ()

    def replayed_letters(self, stream_id: str, by: str) -> int:
        """Return 0: a log holds none."""
        return 0

    def letters_of(
        self, stream_id: str, keys: Collection[LetterKey], most_bytes: int | None
    ) -> tuple[RecordedLetter, ...]:
        """Return none: a log holds none."""
        return ()

    def database_identity(self) -> DatabaseIdentity:
        """Return which log this is: the random id of its first object. A log that is not there yet has none."""
        with self._named():
            origin = self._log.origin()
            return DatabaseIdentity("" if origin is None else origin.log_id, 0)

    def identity(self) -> str:
        """Return which ledger this is: a log is one ledger."""
        return str(self.database_identity())

    def prepare(self) -> None:
        """Make the log, unless it is there.

        Raises:
            ConditionsIgnored: if the service that the log is on has no conditional writes.
        """
        with self._named():
            self._log.make()

    @rerun_after_lost_race
    def forget(self, stream_id: str, owner: Owner) -> None:
        """Delete every row of a stream that belongs to `owner`; done again, it finds none.

        Objects that held them go as well. What stays is a log without a row, as a database's empty tables stay.

        Raises:
            LedgerUnreachable, CommitOutcomeUnknown: if the store does not answer.
        """
        with self.transaction() as transaction:
            row = transaction.lock_stream(stream_id, Lock.SHARE)
            if row is not None and row.owner == owner:
                transaction.delete_stream(stream_id)
        clear(self._log)

    def close(self) -> None:
        """Nothing is kept open: the client of a service is shared by all who use it."""

    def _committables(self, fold: Fold, stream_id: str) -> Mapping[BatchNumber, str]:
        with self._named():
            return self._log.committables(fold, stream_id)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except StoreUnreachable as problem:
            raise LedgerUnreachable(f"The ledger at {self._log.location} cannot be reached: {problem}") from problem
