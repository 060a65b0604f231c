"""What reconciliation can decide: a closed union of verdicts, each with its evidence. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.checkpoint.files import DEFAULT_WATERMARK_POLICY
from exactlyonce.checkpoint.generation import Generation, Marker
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.known_loads import FoundLoad
from exactlyonce.ledger.publish import Adoption
from exactlyonce.ledger.rows import BatchRow, FailureRow, LandedPositions, QueryMark
from exactlyonce.ledger.settlement import Settlement
from exactlyonce.positions.ranges import BatchNumber, Positions


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen, in words and as data.

    A number beyond 64 bits, such as a position in a shard, is a text in the data: the API server would round it.
    """

    words: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = {
            name: str(value) if isinstance(value, int) and value >= 1 << 63 else value
            for name, value in self.data.items()
        }
        object.__setattr__(self, "data", kept)


class RebuildReason(StrEnum):
    """Why the checkpoint is no longer used."""

    CHECKPOINT_LOST = "CheckpointLost"
    CHECKPOINT_DAMAGED = "CheckpointDamaged"
    CHECKPOINT_OLDER = "CheckpointOlderThanSink"
    PLANNED_OTHERWISE = "PlannedOtherwiseThanLanded"
    PARTLY_LANDED = "PartlyLanded"
    PREDECESSOR_MAY_LIVE = "PredecessorMayLive"
    LOCATION_CHANGED = "LocationChanged"
    SOURCE_SET_CHANGED = "SourceSetChanged"
    PLANNED_BEYOND_SOURCE = "PlannedBeyondSource"
    TOPIC_DELETED = "TopicDeleted"


class ContradictionReason(StrEnum):
    """Why nothing may be done without a person."""

    CHECKPOINT_WITHOUT_LEDGER = "CheckpointWithoutLedger"
    LOCATION_TAKEN = "LocationTaken"
    LOCATION_NOT_EMPTY = "LocationNotEmpty"
    OTHER_OWNER = "OtherOwner"
    OTHER_DATABASE = "OtherDatabase"
    LEDGER_LOST = "LedgerLost"
    LEDGER_INCONSISTENT = "LedgerInconsistent"
    LEDGER_BEHIND_SINK = "LedgerBehindSink"
    STATEFUL_QUERY_CHANGED = "StatefulQueryChanged"
    STATE_WOULD_BE_LOST = "StateWouldBeLost"
    CHECKPOINT_NOT_TO_BE_REBUILT = "CheckpointNotToBeRebuilt"
    RESET_REFUSED = "ResetRefused"
    NEW_START_REFUSED = "NewStartRefused"


@dataclass(frozen=True, slots=True)
class FirstStart:
    """No ledger row and an empty location: the start position is resolved and seeded as the empty batch 0."""

    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Resume:
    """Planned, checkpointed and landed agree: Spark continues with the next batch."""

    batch: BatchNumber
    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayBatch:
    """The batch was planned and has not landed: Spark runs it again with the same ranges."""

    batch: BatchNumber
    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplanBatch:
    """The batch was planned and nothing of it landed: it was a proposal, and a new generation plans its records again."""

    batch: BatchNumber
    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class SkipLanded:
    """The batch landed with identical ranges and Spark does not know: the sink recognises it and writes nothing."""

    batch: BatchNumber
    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishBatch:
    """The batch landed for some partitions only: the rest lands, the landed part is recognised."""

    batch: BatchNumber
    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishCommit:
    """The batch is decided in a sink of two phases and has not landed: the driver commits what was prepared, then continues."""

    batch: BatchNumber
    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishFirst:
    """A batch is decided, or landed and perhaps not shown, and no query follows: a driver without one finishes it first."""

    batch: BatchNumber
    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class RebuildFromSink:
    """The checkpoint is unusable: a new generation starts where the sink stands."""

    reason: RebuildReason
    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class RewindToSink:
    """The checkpoint is ahead of the sink, which was restored: a new generation starts where the sink stands."""

    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetsReset:
    """A person asked for other positions after `batch` had landed: a new generation starts at them."""

    batch: BatchNumber
    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceTruncated:
    """The source no longer holds the next record; `resumes` when the resource accepts going on from the earliest."""

    resumes: bool
    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceReplaced:
    """The source is not the one that was read: a topic is gone, was recreated, or ends before what landed."""

    message: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Anything else: the facts do not fit together, and only a person can say what is right."""

    reason: ContradictionReason
    message: str
    evidence: tuple[Evidence, ...] = ()


Verdict = (
    FirstStart | Resume | ReplayBatch | ReplanBatch | SkipLanded | FinishBatch | FinishCommit | FinishFirst
    | RebuildFromSink | RewindToSink | OffsetsReset | SourceTruncated | SourceReplaced | Contradiction
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordIdentity:
    """Write a new owner, database or token of the stream to its row."""

    adoption: Adoption


@dataclass(frozen=True, slots=True)
class WriteMarker:
    """Make `stream.json` say whose the location is, where there is none or it says what it `replaces`."""

    marker: Marker
    replaces: Marker | None = None


@dataclass(frozen=True, slots=True)
class RecordLost:
    """AtMostOnce: record that a batch that was taken may never have been written."""

    batch: BatchRow


@dataclass(frozen=True, slots=True)
class SeedAndPublish:
    """Write a new generation after the batch `seed_batch` and make it the stream's.

    `seed_batch` is an empty batch of its own; or, with `state_of`, the landed batch, and the generation is made of what that
    one retains of it. `resets`: a person asked for the positions, so that also what was given up before may be read again; with
    `most_quarantined`, no more offsets than that may be in quarantine then. `settlement` is of a load that was found.
    """

    generation: Generation
    seed_batch: BatchNumber
    before: Positions
    after: LandedPositions
    note: str
    shuffle_partitions: int
    query: QueryMark
    given_up: tuple[FailureRow, ...] = ()
    state_of: Generation | None = None
    watermark_policy: str = DEFAULT_WATERMARK_POLICY
    resets: bool = False
    most_quarantined: int | None = None
    settlement: Settlement | None = None


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Write down what the next driver is started to do, where that has changed and needs no new generation."""

    query: QueryMark


@dataclass(frozen=True, slots=True)
class RecordAnswers:
    """Write down what a person has found of loads of the decided batch, each by its label."""

    batch: BatchNumber
    answers: Mapping[str, Answer]


@dataclass(frozen=True, slots=True)
class RecordLoads:
    """Write down a person's word on a load that was found in the sink; or that the sink is to be asked."""

    found: Settlement | FoundLoad


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the driver of this attempt."""

    task: DriverTask = DriverTask.RUN_QUERY


Action = RecordIdentity | WriteMarker | RecordLost | SeedAndPublish | RecordQuery | RecordAnswers | RecordLoads | Launch


@dataclass(frozen=True, slots=True)
class Decision:
    """One verdict and what to do about it, in order; a decision that does not end with Launch halts the stream."""

    verdict: Verdict
    actions: tuple[Action, ...] = ()

    @property
    def halts(self) -> bool:
        """Whether the stream stops until a person has acted."""
        return not any(isinstance(action, Launch) for action in self.actions)

    @property
    def finishes(self) -> bool:
        """Whether the driver only finishes what earlier ones have left, and the stream is decided again after it."""
        return Launch(DriverTask.FINISH_ONLY) in self.actions


def kind_of(verdict: Verdict) -> str:
    """Return the verdict's name as a resource, an event and a metric show it."""
    return type(verdict).__name__


def reason_of(verdict: Verdict) -> str | None:
    """Return the code of the verdict's reason where its kind has several; docs/verdicts.md explains each one."""
    return str(verdict.reason) if isinstance(verdict, RebuildFromSink | Contradiction) else None


def batch_of(verdict: Verdict) -> BatchNumber | None:
    """Return the batch that a verdict is about, if it is about one."""
    others = FirstStart | RebuildFromSink | RewindToSink | SourceTruncated | SourceReplaced | Contradiction
    return None if isinstance(verdict, others) else verdict.batch
