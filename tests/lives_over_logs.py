"""A stream's life over an object log with small bounds: drawn by a seed, it writes whatever a log allows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from exactlyonce.api.ledger_retention import LedgerRetention, LossRetention
from exactlyonce.connectors.object_log.bounds import BOUNDS, Bounds, LogFull
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.ledger.expiry import delete_expired, make_room
from exactlyonce.ledger.fence import Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.giving_up import GivenUp, give_up_ranges
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.room import Room, TooMuchInQuarantine
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce_spark.landing import begin_batch, land_batch, record_failure
from exactlyonce_spark.left_out import NotToBeQuarantined
from exactlyonce_spark.planned import Begun, PlannedBatch, Written
from exactlyonce_spark.quarantine import quarantine_batch
from tests.ledgers import IDS, QUERY, STREAM, new_stream
from tests.simulation.objects import MemoryObjects
from tests.simulation.resource import KEEPS_NOTHING

FULL = (LogFull, TooMuchInQuarantine, NotToBeQuarantined)
"""What says that there is no room."""

SMALL = replace(
    BOUNDS,
    object_bytes=24_000,
    folded_bytes=48_000,
    values=2400,
    snapshot_bytes=6000,
    snapshot_values=300,
    batch_ranges=60,
    ended_ranges=12,
    text_bytes=3000,
    room=Room(held=8, kept=16, error_bytes=4000),
)
KEEPS_NO_FAILURE = KEEPS_NOTHING.model_copy(update={"lost_failures": LossRetention.model_construct(age=timedelta(0))})


class LogLife:
    """One stream over one log. Whoever takes it over is another process, which folds the log by itself."""

    def __init__(self, partitions: int, bounds: Bounds = SMALL, every: int = 10) -> None:
        self.store = MemoryObjects()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.bounds, self._every = bounds, every
        self.epoch = self.generation = 0
        self.positions = Positions({Partition("orders", number): 0 for number in range(partitions)})
        self.ledger = self.process()
        self.ledger.prepare()
        self.permit = self.take_over()

    def process(self) -> ObjectLogLedger:
        """Return the ledger as another process opens it."""
        log = ObjectLog(self.store, "ledger", snapshot_every=self._every, archived_from_bytes=2000, bounds=self.bounds)
        return ObjectLogLedger(log, lambda: self.now)

    @property
    def landed(self) -> int:
        """The landed batch, as a new process sees it."""
        return self._landed_of(self.process())

    def _landed_of(self, ledger: ObjectLogLedger) -> int:
        view = ledger.view(STREAM)
        assert view is not None
        return view.stream.landed_batch or 0

    def take_over(self) -> Permit:
        """Raise the epoch and claim it, as for each driver."""
        self.ledger = self.process()
        self.epoch += 1
        self.now += timedelta(minutes=1)
        raise_epoch(self.ledger, new_stream(self.ledger), Epoch(self.epoch), f"ticket-{self.epoch}")
        if not self.generation:
            self.publish(0, self.positions)
        self.permit, _ = claim_epoch(
            self.ledger, STREAM, Epoch(self.epoch), f"claim-{self.epoch}", f"ticket-{self.epoch}"
        )
        return self.permit

    def publish(self, seed: int, after: Positions, lost: tuple[FailureRow, ...] = ()) -> None:
        """Publish a generation that begins elsewhere."""
        before = Positions() if not self.generation else self.positions
        self.generation += 1
        path = f"/c/generation-{self.generation:06}-a{self.epoch}"
        landed = LandedPositions(after, IDS)
        publish(
            self.ledger,
            STREAM,
            Publication(
                Epoch(self.epoch), self.generation, path, BatchNumber(seed), before, landed, "a test", QUERY, lost
            ),
        )
        self.positions = after

    def next_batch(self) -> PlannedBatch:
        """Return the next batch: a record of each partition."""
        ranges = Ranges({key: OffsetRange(at, at + 1) for key, at in self.positions.items()})
        return PlannedBatch(BatchNumber(self._landed_of(self.ledger) + 1), ranges, IDS)

    def land(self, text: str = "files") -> None:
        """Land the next batch."""
        batch = self.next_batch()

        def write(transaction: LedgerTransaction) -> Written:
            transaction.write_committable(STREAM, batch.number, text)
            return Written(1)

        begin_batch(self.ledger, self.permit, batch)
        land_batch(self.ledger, self.permit, batch, write)
        self.positions = batch.ranges.ends

    def fail(self, error: str) -> None:
        """Record that the next batch has failed."""
        batch = self.next_batch()
        begin_batch(self.ledger, self.permit, batch)
        record_failure(self.ledger, self.permit, batch, "brokers", error)

    def quarantine(self, error: str = "it failed") -> None:
        """Pass over the next batch."""
        batch = self.next_batch()
        quarantine_batch(self.ledger, self.permit, batch, Begun(frozenset(), {}), "brokers", error, 1_000_000)
        self.positions = batch.ranges.ends

    def lose(self, error: str = "retention took it") -> None:
        """Continue behind a record of each partition that the source lost."""
        raise_epoch(self.ledger, new_stream(self.ledger), Epoch(self.epoch + 1), f"ticket-{self.epoch + 1}")
        self.epoch += 1
        seed = self.landed + 1
        after = Positions({key: at + 1 for key, at in self.positions.items()})
        lost = tuple(
            FailureRow(BatchNumber(seed), key, at, at + 1, FailureStatus.LOST, "brokers", error)
            for key, at in self.positions.items()
        )
        generation = self.generation
        try:
            self.publish(seed, after, lost)
        except FULL:
            self.generation = generation
            self.take_over()
            raise
        self.take_over()

    def rows(self, *statuses: FailureStatus) -> tuple[FailureRow, ...]:
        """Return the failed ranges with these statuses, as a new process sees them."""
        with self.process().transaction() as transaction:
            return tuple(row for status in statuses for row in transaction.read_failures(STREAM, status))

    def replayed(self, rows: tuple[FailureRow, ...]) -> None:
        """Replays have landed some ranges."""
        with self.ledger.transaction() as transaction:
            transaction.write_failures(STREAM, tuple(replace(row, status=FailureStatus.REPLAYED) for row in rows))

    def give_up_all(self, why: str = "nobody needs it") -> None:
        """A person gives up what is in quarantine."""
        held = self.rows(*HELD)
        changed = give_up_ranges(self.process(), STREAM, held, GivenUp("alice", self.now, why))
        assert changed.refused == ()
        assert len(changed.rows) == len(held)

    def delete(self, retention: LedgerRetention = KEEPS_NO_FAILURE) -> None:
        """Delete what is kept no longer, as a driver does beside its batches and the operator before a launch."""
        self.now += timedelta(hours=1)
        make_room(self.process(), STREAM, retention)
        while delete_expired(self.ledger, self.permit, retention, fewest=1).failures:
            pass

    def draw(self, dice: random.Random) -> Callable[[], None]:
        """Return something that a stream, an operator or a replay may do next."""
        error = dice.choice(["it failed", "é" * dice.randint(1, 400), "x" * dice.randint(1, 6000)])
        held = self.rows(*HELD)
        some = tuple(dice.sample(held, dice.randint(0, len(held))))
        acts: list[tuple[int, Callable[[], object]]] = [
            (4, lambda: self.land("f" * dice.randint(1, 5000))),
            (3, lambda: self.fail(error)),
            (4, lambda: self.quarantine(error)),
            (1, lambda: self.lose(error)),
            (1, self.take_over),
            (1, lambda: self.replayed(some)),
            (1, self._add_partition),
        ]
        chosen = dice.choices([act for _, act in acts], weights=[weight for weight, _ in acts])[0]

        def act() -> None:
            chosen()

        return act

    def _add_partition(self) -> None:
        if len(self.positions) < 5:
            self.positions = Positions({**self.positions, Partition("orders", len(self.positions)): 0})
            self.land()
