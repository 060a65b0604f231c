"""Everything a decision depends on, gathered once. Performs no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from exactlyonce.api.recovery import OnCheckpointLost, OnSourceTruncated, OnTopicDeleted
from exactlyonce.api.spec import Delivery
from exactlyonce.checkpoint.files import DEFAULT_WATERMARK_POLICY
from exactlyonce.checkpoint.generation import Generation, Marker
from exactlyonce.checkpoint.retained import NotRetained, Retained
from exactlyonce.checkpoint.state import CheckpointState
from exactlyonce.connectors.specs import Commit
from exactlyonce.ledger.room import Room
from exactlyonce.ledger.rows import DatabaseIdentity, FailureRow, LedgerView, Owner
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions, Ranges, offset_text
from exactlyonce.positions.selection import Selection
from exactlyonce.source.port import SourceView


@dataclass(frozen=True, slots=True)
class NoPredecessor:
    """No driver ever wrote to the published checkpoint."""


@dataclass(frozen=True, slots=True)
class ProvenDead:
    """The last driver has ended and writes nothing any more; `proof` says how that is known."""

    proof: str


@dataclass(frozen=True, slots=True)
class MayLive:
    """The last driver claimed its epoch and its death is not proven; `message` says what is missing."""

    message: str


Predecessor = NoPredecessor | ProvenDead | MayLive


@dataclass(frozen=True, slots=True)
class Request:
    """What the resource asks for, as far as a decision depends on it.

    `origin_noun` is what the source's connector calls an origin in a sentence, `position_text` how it writes a position,
    and `positions_count_records` whether the difference of two positions is a number of records. `two_phases`: the sink
    commits rows by itself, so they stay where the ledger goes back; `tells_latest_load`: it says which it has committed last,
    so that a driver can compare. `shows_landed`: the sink shows readers what has landed, behind the ledger. `finished_by` is
    the attempt of the latest driver, if that was one without a query which has finished all that it found. `former_batch` is
    the latest batch of a query of Spark's own whose output the stream continues. `query` is a hash of format and transform.
    `limit` says how large a batch may be, and `shrunk` how many offsets it may have while the loop holds it smaller than that,
    because of the batch `too_large`. `poison` is the batch that the next driver quarantines, by its failing records alone
    where it `bisects`. `adopt` and `fresh` hold the token they are meant for, so that an annotation that was left behind has
    no further effect; `settle_loads` names the loads of one batch, and what a person has found of each; `reset_offsets` names
    the batch that had landed when it was asked for. `most_quarantined` is how many offsets the stream may have in quarantine.
    """

    stream_id: str
    owner: Owner
    location: str
    source: Selection
    query: str
    origin_noun: str = "topic"
    position_text: Callable[[int], str] = offset_text
    positions_count_records: bool = True
    two_phases: bool = False
    tells_latest_load: bool = False
    shows_landed: bool = False
    finished_by: int | None = None
    former_batch: int | None = None
    limit: str = ""
    shrunk: int | None = None
    too_large: int | None = None
    poison: int | None = None
    bisects: bool = False
    delivery: Delivery = Delivery.EXACTLY_ONCE
    commit: Commit = Commit.BATCH
    on_checkpoint_lost: OnCheckpointLost = OnCheckpointLost.REBUILD_FROM_SINK
    on_source_truncated: OnSourceTruncated = OnSourceTruncated.HALT
    on_topic_deleted: OnTopicDeleted = OnTopicDeleted.HALT
    shuffle_partitions: int = 8
    watermark_policy: str = DEFAULT_WATERMARK_POLICY
    adopt: str | None = None
    fresh: str | None = None
    settle_loads: str | None = None
    reset_offsets: str | None = None
    most_quarantined: int | None = None

    def shown(self, positions: Positions | Ranges) -> str:
        """Return positions or ranges in words, each position as the source writes it."""
        return positions.text(self.position_text)

    @property
    def lands_by_partition(self) -> bool:
        """Whether each partition of a batch lands in a transaction of its own."""
        return self.delivery is Delivery.EXACTLY_ONCE and self.commit is Commit.PARTITION


@dataclass(frozen=True, slots=True)
class LocationView:
    """What stands at the checkpoint location: whose it is, its generations with the highest batch each planned.

    `ran` are the generations that planned a batch beyond their seed; `foreign` are names that are not this project's.
    """

    marker: Marker | None = None
    generations: tuple[Generation, ...] = ()
    highest_planned: Mapping[Generation, BatchNumber] = field(default_factory=dict)
    ran: frozenset[Generation] = frozenset()
    foreign: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing was ever put there."""
        return self.marker is None and not self.generations and not self.foreign


@dataclass(frozen=True, slots=True)
class Known:
    """What the resource's status remembers of the ledger: the latest batch that it has shown as landed, and when that was.

    `checkpoint_path` is the published checkpoint that the latest driver was started on.
    """

    batch: BatchNumber
    at: datetime | None = None
    checkpoint_path: str | None = None

    @property
    def words(self) -> str:
        """What the status knows, as the beginning of a sentence."""
        when = "" if self.at is None else f" at {self.at.isoformat(timespec='seconds')}"
        return f"the resource's status knows that batch {self.batch} landed{when}"


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at everything, for one attempt.

    `ledger` is None when the stream has no row, which only a look without a raise can see. `checkpoint` is the state of
    the published generation, or of the latest one that ran where none is published. `start` is where a stream that
    starts now would start, or where partitions begin that a changed resource has added; None where that is not asked.
    `retained` is what the published generation still holds of the landed batch's state; None where no decision needs it.
    `owner_is_gone` tells whether the ledger's owner, where it is another one, no longer exists in this cluster. `new_token`
    is a random token for a row that needs a new one. `known` is what the status remembers of the ledger; None where it
    remembers nothing, as that of a resource which was recreated. `last_before_reset` are the last records before the positions
    that a reset asks for, as far as the source has them; where one is asked for, `kept` are the failed ranges that count
    against the ledger's `room`, which is None where it has no bound. `source_address` is what a person calls the source.
    """

    epoch: Epoch
    request: Request
    new_token: str
    database: DatabaseIdentity
    ledger: LedgerView | None
    location: LocationView
    checkpoint: CheckpointState
    predecessor: Predecessor
    source: SourceView
    start: Positions | None = None
    owner_is_gone: bool = False
    retained: Retained | NotRetained | None = None
    known: Known | None = None
    last_before_reset: Mapping[Partition, Fingerprint | None] = field(default_factory=dict)
    kept: tuple[FailureRow, ...] = ()
    room: Room | None = None
    source_address: str = ""
