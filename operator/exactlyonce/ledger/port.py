"""The port to a ledger: single statements inside transactions.

The rules that give the guarantee (fence, claim, publish, landing) are written once over this port, in this package and
in `exactlyonce_spark.landing`; the stores only carry out statements. One behaviour suite runs over the in-memory ledger
of the simulation and over every ledger that there is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from enum import Enum
from typing import Protocol

from exactlyonce.ledger.backfills import Backfill, Occupant
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.letters import LetterKey, LetterRow, SetBack
from exactlyonce.ledger.room import Room
from exactlyonce.ledger.rows import (
    BatchRow,
    BatchStatus,
    DatabaseIdentity,
    Excess,
    FailureRow,
    FailureStatus,
    LandedPositions,
    LedgerView,
    QueryMark,
    StreamRow,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Ranges


class Lock(Enum):
    """How a transaction holds the stream's row: shared by landing tasks, exclusively by who changes the row."""

    SHARE = "for share"
    UPDATE = "for update"


class LedgerTransaction(Protocol):
    """One transaction at READ COMMITTED. Every statement sees what was committed before it, and its own changes.

    A ledger without locks does not wait: it finds out at the commit that another transaction was first.
    """

    @property
    def room(self) -> Room | None:
        """Return the ledger's `room`."""
        ...

    def lock_stream(self, stream_id: str, lock: Lock) -> StreamRow | None:
        """Lock the stream's row until the transaction ends and return it as committed; wait for other holders.

        In a transaction begun with `evicting`, holders that keep it longer than the patience given are ended.
        """
        ...

    def insert_stream(self, row: StreamRow) -> bool:
        """Insert the stream's row; False when there is one (then nothing was changed)."""
        ...

    def update_stream(self, row: StreamRow) -> None:
        """Write the row's columns; the caller holds the row with Lock.UPDATE."""
        ...

    def write_witness(self, stream_id: str, batch: BatchNumber, tag: int) -> None:
        """Record that a task of a batch wrote its rows in this transaction, under a random tag of that very run of it."""
        ...

    def take_witnesses(self, stream_id: str, batch: BatchNumber) -> frozenset[int]:
        """Remove the witnesses of a batch and of all before it, and return the tags of this batch."""
        ...

    def read_positions(self, stream_id: str) -> LandedPositions:
        """Return where the stream stands."""
        ...

    def advance_positions(
        self,
        stream_id: str,
        ranges: Ranges,
        origin_ids: dict[str, str],
        fingerprints: Mapping[Partition, Fingerprint] | None = None,
    ) -> int:
        """Move each partition from its range's start to its end where it stands at the start, and return how many were.

        A partition without a row is taken to stand at 0 and gets one. Several callers of one partition take turns. The
        fingerprint of a partition that moves is replaced by the one given, or by none.
        """
        ...

    def set_positions(self, stream_id: str, landed: LandedPositions) -> None:
        """Replace all positions of the stream, with their fingerprints; the caller holds the row with Lock.UPDATE.

        Those of partitions that are left out are kept as retired: nothing lands there until they are set again. Where a
        position goes back, or its topic is another one, records are read again, and may be given up again.
        """
        ...

    def write_query(self, stream_id: str, query: QueryMark) -> None:
        """Record what the next driver is started to do; the caller holds the row with Lock.UPDATE."""
        ...

    def write_sink(self, stream_id: str, epoch: Epoch, sink: str) -> None:
        """Record into what the process of an epoch lands; the caller holds the row with Lock.UPDATE.

        A ledger that takes no replay records nothing.
        """
        ...

    def read_sink(self, stream_id: str) -> str | None:
        """Return into what the process lands that was the last to claim an epoch; None where that one has not recorded it."""
        ...

    def read_backfill(self, stream_id: str, name: str) -> Backfill | None:
        """Return what a backfill of the stream has landed; None where there is none of that name."""
        ...

    def occupant_of(self, place: str, stream_id: str, own: str) -> Occupant | None:
        """Return whose table rows reach that land into `place`, by whatever name; None where it is nobody's.

        Streams have what their latest driver has recorded, and the one with `stream_id` has `own`, too, unless it is empty.
        """
        ...

    def write_backfill(self, stream_id: str, backfill: Backfill) -> None:
        """Insert or replace a backfill; the caller holds the row with Lock.UPDATE."""
        ...

    def read_batch(self, stream_id: str, batch: BatchNumber) -> BatchRow | None:
        """Return one batch's row."""
        ...

    def read_batches_after(self, stream_id: str, batch: BatchNumber | None) -> tuple[BatchRow, ...]:
        """Return the rows of the batch given and of all later ones, in order."""
        ...

    def write_batch(self, stream_id: str, row: BatchRow) -> None:
        """Insert or replace one batch's row."""
        ...

    def write_committable(self, stream_id: str, batch: BatchNumber, committable: str) -> None:
        """Record what becomes visible by this very transaction: a text of the sink's own, kept for as long as the stream.

        A batch's text may be replaced by one that makes the same visible; the caller holds the row with Lock.UPDATE then.
        """
        ...

    def read_committables(self, stream_id: str) -> Mapping[BatchNumber, str]:
        """Return what each batch has made visible, in the order of their numbers."""
        ...

    def write_replayed(self, stream_id: str, name: str, committable: str) -> None:
        """Record what a replay makes visible by this very transaction, under a name of its own: it is no batch's.

        It counts from then on, and takes the place of what that name had. The next batch that lands takes it over; the caller
        holds the row with Lock.UPDATE.
        """
        ...

    def read_replayed(self, stream_id: str) -> Mapping[str, str]:
        """Return what replays have made visible and no batch has taken over, by its name."""
        ...

    def take_replayed(self, stream_id: str) -> Mapping[str, str]:
        """Return the same and forget it: it is in what a batch makes visible by this very transaction.

        The caller holds the row with Lock.UPDATE.
        """
        ...

    def write_decided(self, stream_id: str, decided: DecidedBatch | None) -> None:
        """Record what is to be committed of the stream's decided batch; None once it has landed.

        The caller holds the row with Lock.UPDATE.
        """
        ...

    def read_decided(self, stream_id: str) -> DecidedBatch | None:
        """Return the stream's batch that is decided and has not landed; the caller holds the row."""
        ...

    def supersede_batches(self, stream_id: str, after: BatchNumber | None) -> None:
        """Mark every batch after the one given that has not landed as Superseded, and what failed of it, too."""
        ...

    def write_failures(self, stream_id: str, failures: tuple[FailureRow, ...]) -> None:
        """Record failed ranges; the same batch, partition and start again replaces its record.

        Raises:
            LedgerRefused: if a range that is lost or quarantined overlaps another such range of the partition whose records it
                has in common; those of topics that are gone have none.
        """
        ...

    def read_failures(self, stream_id: str, status: FailureStatus) -> tuple[FailureRow, ...]:
        """Return the failed ranges with this status, by batch, partition and start."""
        ...

    def settle_failures(self, stream_id: str, batch: BatchNumber, status: FailureStatus) -> None:
        """Give every open failure of the batch this status."""
        ...

    def delete_batches(self, stream_id: str, excess: Excess, fewest: int, most: int) -> int:
        """Delete at most `most` batches that are not kept, and return how many went.

        Only among those before the landed batch, and before the latest `fewest` with the status Landed.
        """
        ...

    def delete_failures(self, stream_id: str, status: FailureStatus, age: timedelta, most: int) -> int:
        """Delete at most `most` failures that have had this status for longer than `age`, and return how many went.

        Only those of batches before the landed one.
        """
        ...

    def delete_dead_letters(self, stream_id: str, age: timedelta, most: int) -> int:
        """Delete at most `most` dead letters that landed longer ago than `age`, and return how many went."""
        ...

    def read_letters(self, stream_id: str, keys: Collection[LetterKey]) -> tuple[LetterRow, ...]:
        """Return the dead letters with these keys that are there, without their content. A log holds none."""
        ...

    def write_letters(self, stream_id: str, rows: tuple[LetterRow, ...]) -> None:
        """Write status, replay and error of dead letters that are there; one of another batch is left as it is."""
        ...

    def read_set_backs(self, stream_id: str) -> tuple[SetBack, ...]:
        """Return from where the stream has read again, as far as dead letters may be there."""
        ...

    def write_set_backs(self, stream_id: str, set_backs: tuple[SetBack, ...]) -> None:
        """Record from where the stream reads again; the caller holds the row with Lock.UPDATE."""
        ...


class Ledger(Protocol):
    """A ledger in one database.

    Raises LedgerUnreachable when the database does not answer and LedgerRefused when it answers with a refusal.
    """

    @property
    def room(self) -> Room | None:
        """Return how many failed ranges the ledger holds; None where it has no bound."""
        ...

    def transaction(
        self, *, evicting: bool = False, lasting: bool = True, dispensable: bool = False
    ) -> AbstractContextManager[LedgerTransaction]:
        """Open a transaction that commits when its block ends and rolls back when the block raises.

        `evicting`: end the sessions that hold a lock this transaction waits for longer than the ledger's patience.
        `lasting`: the commit waits for the disk, whatever role and database say; False only for records that are evidence
        and not promises.
        `dispensable`: what the block changes may be left out altogether. A ledger to which every commit is a request leaves it
        out; what the block requires is checked all the same.

        Raises:
            CommitOutcomeUnknown: from the end of the block, when the connection was lost during the COMMIT.
            LostRace: from the end of the block, of a ledger without locks; `ledger.races` runs the block again.
        """
        ...

    def view(self, stream_id: str) -> LedgerView | None:
        """Return what is committed of a stream, in one query and without locks; None when it has no row."""
        ...

    def database_identity(self) -> DatabaseIdentity:
        """Return which database this is."""
        ...

    def identity(self) -> str:
        """Return which ledger this is; a database may hold several, and each has another text."""
        ...

    def prepare(self) -> None:
        """Make the ledger's schema where it is missing; safe to call at every start and by several processes at once."""
        ...


LANDED_STATUSES = tuple(status for status in BatchStatus if status.landed)
