"""What is done when something was lost or fails again and again: `spec.recovery`."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from exactlyonce.connectors.registry import source_fields
from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.model import LARGEST, Duration, Model, Whole, is_duration_cel, within


class OnCheckpointLost(StrEnum):
    """What happens when the checkpoint is unusable."""

    REBUILD_FROM_SINK = "RebuildFromSink"
    HALT = "Halt"


class OnSourceTruncated(StrEnum):
    """What happens when the source no longer holds the next record."""

    HALT = "Halt"
    RESUME_FROM_EARLIEST = "ResumeFromEarliest"


class OnBatchTooLarge(StrEnum):
    """What happens when a batch failed because it was too large: too little memory, or too little time."""

    SHRINK = "Shrink"
    RETRY = "Retry"


class OnPoisonBatch(StrEnum):
    """What happens when the same batch has failed recovery.maxFailuresPerBatch times."""

    HALT = "Halt"
    QUARANTINE = "Quarantine"
    BISECT = "Bisect"

    @property
    def continues(self) -> bool:
        """Whether the stream continues without what fails."""
        return self is not OnPoisonBatch.HALT


DEFAULT_MOST_QUARANTINED = 1_000_000


class OnTopicDeleted(StrEnum):
    """What happens when a topic that the pattern matched was deleted."""

    HALT = "Halt"
    FORGET = "Forget"


class OnBadUpdate(StrEnum):
    """What happens when the driver that a changed resource asks for cannot start."""

    ROLL_BACK = "RollBack"
    STAY = "Stay"


class Backoff(Model):
    """How long to wait before a restart while nothing lands."""

    initial: Annotated[Duration, within("0s", "24h")] = Field(
        timedelta(seconds=5), description="The first wait; each further one is twice as long, up to max."
    )
    max: Annotated[Duration, within("0s", "24h")] = Field(timedelta(minutes=5), description="The longest wait.")

    rules = (
        Rule(
            f"!{is_duration_cel('self.initial')} || !{is_duration_cel('self.max')} || "
            "duration(self.initial) <= duration(self.max)",
            lambda it: it.initial <= it.max,
            "initial may not exceed max",
        ),
    )


class Recovery(Model):
    """What is done when something was lost or fails again and again."""

    on_checkpoint_lost: OnCheckpointLost = Field(
        OnCheckpointLost.REBUILD_FROM_SINK, description="When the checkpoint is lost, corrupt or behind the sink."
    )
    on_source_truncated: OnSourceTruncated = Field(
        OnSourceTruncated.HALT, description="When the source no longer holds the next record."
    )
    on_batch_too_large: OnBatchTooLarge = Field(
        OnBatchTooLarge.SHRINK,
        description="When a batch needed more memory or time than there is: Shrink halves the limit of a batch until its "
        "records have landed; Retry runs it again as it is, like any batch that failed.",
    )
    on_topic_deleted: OnTopicDeleted = Field(
        OnTopicDeleted.HALT,
        description=f"When a topic that {' or '.join(source_fields('Pattern'))} matched was deleted. Forget continues without "
        "it, and reads one that was recreated under its name from its first record; records of the deleted topic that had not "
        "landed are lost. A stream halts all the same if none of its topics is left, and if its query keeps state.",
    )
    on_bad_update: OnBadUpdate = Field(
        OnBadUpdate.ROLL_BACK,
        description="What to do when drivers with a changed image, pod template, size or Spark setting end before Spark is "
        "up: RollBack returns to the spec and the image of the latest driver that ran Spark, until the resource is changed; "
        "Stay keeps trying the changed resource. Nothing is rolled back if anything else was changed as well.",
    )
    max_failures_per_batch: Whole = Field(
        5, ge=1, le=1000, description="After this many failures of the same batch, onPoisonBatch decides what happens."
    )
    on_poison_batch: OnPoisonBatch = Field(
        OnPoisonBatch.HALT,
        description="What to do with a batch that has failed maxFailuresPerBatch times: Halt stops the stream; Quarantine "
        "continues after the batch and keeps its ranges in the ledger's table failures, with the status Quarantined. None of "
        "its rows takes effect, unless partitions of it had landed one by one. Bisect has the next driver try parts of the "
        "batch, halving those that fail, until single records are found; the batch lands without those, which are quarantined. "
        "Where none fails by itself, or the batch then fails as often again, all of it is quarantined. A query that keeps "
        "state always halts.",
    )
    max_quarantined: Whole = Field(
        DEFAULT_MOST_QUARANTINED,
        ge=1,
        le=LARGEST,
        description="How many records the stream may have in quarantine; it halts instead of exceeding this number. A range of "
        "a source whose positions do not count records counts as one.",
    )
    backoff: Backoff = Field(Backoff(), description="How long to wait between attempts that land nothing.")
