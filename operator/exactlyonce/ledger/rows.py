"""The ledger's rows as typed objects. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from exactlyonce.bounded_json import parse_json
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.known_loads import NO_LOADS, KnownLoads
from exactlyonce.ledger.life import life_of
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions, Ranges
from exactlyonce.positions.selection import Selection


@dataclass(frozen=True, slots=True)
class DatabaseIdentity:
    """Which database this is: the cluster's system identifier (`pg_control_system()`) and the database's oid."""

    system_identifier: str
    database_oid: int

    def __str__(self) -> str:
        return f"system {self.system_identifier} database {self.database_oid}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The resource that a stream belongs to: the cluster it lives in and its uid there."""

    cluster: str
    uid: str

    def __str__(self) -> str:
        return f"{self.uid} in {self.cluster}"


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One stream's row: whose it is, who may land, and how far it has landed.

    `ticket` is a random text of the raise of this epoch, which only a driver that it started has: epochs start over where a
    stream is forgotten and recreated. `claim` is None until the process of this epoch has claimed it. `writer` is the epoch of
    the process that last claimed the right to write the published checkpoint, whatever epoch it is now; `writer_released` says
    that the latest such process has ended, with all that it had landed shown. `landed_batch`, `generation` and
    `checkpoint_path` are None until the first generation is published. `stateful`: a batch of a stateful query has landed.
    `loads`: of a sink of two phases.
    """

    stream_id: str
    token: str
    owner: Owner
    database: DatabaseIdentity
    epoch: Epoch
    ticket: str
    claim: str | None = None
    writer: Epoch | None = None
    writer_released: bool = False
    landed_batch: BatchNumber | None = None
    generation: int | None = None
    checkpoint_path: str | None = None
    stateful: bool = False
    loads: KnownLoads = NO_LOADS

    @property
    def life(self) -> str:
        """What others may know of the token, which is a secret: a stream that starts over has another life."""
        return life_of(self.token)

    def raised_to(self, epoch: Epoch, ticket: str) -> StreamRow:
        """Return the row after a raise: the new epoch, claimed by no one; who wrote the checkpoint stays known."""
        return replace(self, epoch=epoch, ticket=ticket, claim=None)


class BatchStatus(StrEnum):
    """How far a batch has come."""

    IN_PROGRESS = "InProgress"
    """Its ranges are recorded; its rows may or may not have been written, and none count."""
    TAKEN = "Taken"
    """AtMostOnce: the positions have moved past it; its rows are being written."""
    DECIDED = "Decided"
    """A sink of two phases: the positions have moved past it, and what its tasks prepared is being committed."""
    LANDED = "Landed"
    """Its rows, or with AtLeastOnce at least its rows, are in the sink and the positions have moved past it."""
    SEEDED = "Seeded"
    """An empty batch that stands for the start of a generation."""
    FAILED = "Failed"
    """It ended with an error before it landed; it will be retried."""
    LOST = "Lost"
    """AtMostOnce: a crash after it was taken; some or all of its rows were never written."""
    QUARANTINED = "Quarantined"
    """It failed too often: the positions have moved past it, and what had not landed of it is kept among the failures."""
    SUPERSEDED = "Superseded"
    """A rebuilt generation reads its records again under another number."""

    @property
    def landed(self) -> bool:
        """Whether the positions stand at or past the batch's end."""
        ended = (BatchStatus.LANDED, BatchStatus.SEEDED, BatchStatus.LOST, BatchStatus.QUARANTINED)
        return self.unfinished or self in ended

    @property
    def unfinished(self) -> bool:
        """Whether the positions have moved past the batch and its rows are yet to take effect."""
        return self in (BatchStatus.TAKEN, BatchStatus.DECIDED)


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch: its status, all of its ranges, and what was counted.

    `rows_written` are rows of the table that were inserted, replaced or deleted. `landed_at` is the moment
    of its landing by the database's clock; it is read, never written.
    """

    batch: BatchNumber
    epoch: Epoch
    status: BatchStatus
    ranges: Ranges
    records_read: int | None = None
    rows_written: int | None = None
    dead_letters: int | None = None
    note: str = ""
    landed_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Excess:
    """Which batches are not kept: of these statuses, those older than `age` and those before the batch `before`."""

    statuses: tuple[BatchStatus, ...]
    age: timedelta
    before: BatchNumber | None = None


class FailureStatus(StrEnum):
    """What became of ranges that failed."""

    OPEN = "Open"
    """The batch failed and has not landed yet."""
    CLOSED = "Closed"
    """The batch landed in a later try."""
    LOST = "Lost"
    """The records take no effect: retention took them, their topic was deleted, or AtMostOnce gave them up."""
    QUARANTINED = "Quarantined"
    """The batch failed too often and the stream continued without these records; the source may still hold them."""
    REPLAYING = "Replaying"
    """A replay has taken the range and has not landed it; the row names the replay, which may have died since."""
    REPLAYED = "Replayed"
    """A replay has landed the records."""
    GIVEN_UP = "GivenUp"
    """They were in quarantine, and a person has said that they are to take no effect; the error says who, when and why."""
    SUPERSEDED = "Superseded"
    """The batch never landed, or was quarantined: the stream reads its records again under another number."""


def counts_records(until: int) -> bool:
    """Whether the positions of a range that ends there count records: those that do not are beyond 64 bits."""
    return until < 1 << 63


@dataclass(frozen=True, slots=True)
class FailureRow:
    """The ranges of one partition that failed in one batch.

    `origin_gone`: the topic was deleted, so its offsets name no record any more, and a lost range may overlap another one.
    What is quarantined also says which records these were, so that a replay reads no other ones: the id of the origin, the
    fingerprint of the last record, and the life of the stream; each is missing where the source had none. `replay` has claimed
    it; `DECIDED` follows its token where its rows are to be committed in a sink of two phases, and may be by now.
    """

    DECIDED: ClassVar[str] = " decided"

    batch: BatchNumber
    partition: Partition
    from_offset: int
    until_offset: int
    status: FailureStatus
    address: str
    error: str
    origin_gone: bool = False
    origin_id: str = ""
    fingerprint: Fingerprint | None = None
    life: str = ""
    replay: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether a replay has decided that its rows are committed, and nothing has been recorded of what became of them."""
        return self.status is FailureStatus.REPLAYING and self.replay.endswith(self.DECIDED)

    @property
    def token(self) -> str:
        """The token of the replay that has claimed it, whether or not that has decided it."""
        return self.replay.removesuffix(self.DECIDED)

    @property
    def passed_over(self) -> bool:
        """Whether the stream has continued without the records, which it does at most once for each record."""
        again = (FailureStatus.OPEN, FailureStatus.CLOSED, FailureStatus.SUPERSEDED)
        return self.status not in again and not self.origin_gone

    def overlaps(self, other: FailureRow) -> bool:
        """Return whether both hold an offset of the same partition."""
        same = self.partition == other.partition
        return same and self.from_offset < other.until_offset and other.from_offset < self.until_offset

    @property
    def offset_count(self) -> int:
        """How many offsets the range spans; 1 where its positions are beyond 64 bits, as those that count no records are."""
        return self.until_offset - self.from_offset if counts_records(self.until_offset) else 1


@dataclass(frozen=True, slots=True)
class LandedPositions:
    """Where a stream stands in each partition, and the id of each topic as it was when it was first read.

    `fingerprints` are of the last record before the position, in the partitions where one is kept.
    """

    positions: Positions
    origin_ids: dict[str, str]
    fingerprints: Mapping[Partition, Fingerprint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryMark:
    """What the latest driver was started to do: which partitions it reads, a hash of format and transform, its limit.

    `limit` says how large the resource lets a batch be, `shrunk` is the smaller number of offsets that the loop let it have
    since a batch was too large, and `left_out` says where partitions stood when the latest generation left them out, of which
    no batch's row tells.
    """

    source: Selection
    query: str
    limit: str
    shrunk: int | None = None
    left_out: Positions = field(default_factory=Positions)

    def to_json(self) -> str:
        """Render it; equal marks give equal texts."""
        document = {
            "source": json.loads(self.source.to_json()),
            "query": self.query,
            "limit": self.limit,
            "shrunk": self.shrunk,
            "leftOut": json.loads(self.left_out.to_json()),
        }
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> QueryMark:
        """Parse what `to_json` renders."""
        found = parse_json(text)
        source = Selection.from_json(json.dumps(found["source"]))
        left_out = Positions.from_json(json.dumps(found["leftOut"]))
        return cls(source, str(found["query"]), found["limit"], found["shrunk"], left_out)


NO_POSITIONS = LandedPositions(Positions(), {})


@dataclass(frozen=True, slots=True)
class LedgerView:
    """What one look at the ledger shows of a stream.

    `batches` holds the rows that a decision may need: the landed batch and all later ones; `earlier` those before them, as far
    as they were read for evidence. `retired` is where partitions stand that are not read any more. `query` is None before a
    generation is published. `decided` is the batch whose rows are yet to be committed in a sink of two phases; a seed may have
    followed it.
    """

    stream: StreamRow
    landed: LandedPositions
    batches: tuple[BatchRow, ...] = ()
    retired: LandedPositions = NO_POSITIONS
    query: QueryMark | None = None
    decided: DecidedBatch | None = None
    earlier: tuple[BatchRow, ...] = ()

    @property
    def mark(self) -> QueryMark:
        """What the latest driver was started to do, of a stream with a published generation that fits itself."""
        assert self.query is not None, "ledger_contradiction has looked"
        return self.query

    def batch(self, number: BatchNumber) -> BatchRow | None:
        """Return the row of one batch, if it was looked at."""
        return next((row for row in self.batches if row.batch == number), None)
