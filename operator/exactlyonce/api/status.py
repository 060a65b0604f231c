"""What is so: the status of a stream, which is also the operator's write-ahead log."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from exactlyonce.api.attempt_status import BadUpdate, DriverTask, GoodAttempt, StatusModel
from exactlyonce.schema.constraints import Unique


class Phase(StrEnum):
    """Where a stream is in its life."""

    PENDING = "Pending"
    RECONCILING = "Reconciling"
    LAUNCHING = "Launching"
    RUNNING = "Running"
    DRAINING = "Draining"
    BACKING_OFF = "BackingOff"
    HALTED = "Halted"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"


class VerdictStatus(StatusModel):
    """The latest verdict of reconciliation."""

    kind: str = Field(description="The verdict.")
    reason: str | None = Field(
        None,
        description="The reason, as a CamelCase code, where this kind of verdict has several; docs/verdicts.md explains each.",
    )
    message: str = Field("", description="Why, in one sentence.")
    attempt: int = Field(description="The attempt for which it was made.")
    at: datetime = Field(description="When it was made.")
    batch: int | None = Field(None, description="The batch it is about.")
    evidence: tuple[dict[str, Any], ...] = Field((), description="The facts that it was based on.")


class DriverStatus(StatusModel):
    """The latest driver."""

    attempt: int = Field(description="Its attempt.")
    task: DriverTask = Field(
        DriverTask.RUN_QUERY,
        description="What it was started to do. FinishOnly: it commits what earlier drivers have decided, or shows what they "
        "have landed, and runs no query.",
    )
    landed_at_start: int | None = Field(None, description="The landed batch when it was started.")
    plan: str | None = Field(
        None, description="A hash of what it was built from; if it changes, the driver is replaced."
    )
    takes_over: str | None = Field(
        None,
        description="The value that `tookOver` gets when this driver starts the stream from a lease table or consumer group.",
    )
    ended: str | None = Field(None, description="How it ended; unset while it runs.")
    case: str | None = Field(
        None,
        description="The error that it ended with, as a CamelCase code such as FilesGone; unset if it named none.",
    )
    finish_first: bool = Field(
        False,
        description="Whether a driver without a query follows it, before the stream is decided again: what is decided in the "
        "ledger is finished first.",
    )
    proof: str | None = Field(None, description="The proof that it has ended; unset until it is proven.")
    writer_proof: str | None = Field(
        None,
        description="With FinishOnly, the proof that the driver which last wrote the checkpoint has ended; unset until that is "
        "proven.",
    )
    message: str | None = Field(None, description="The last message of the driver.")
    pod_name: str | None = Field(None, description="Its pod.")
    image: str | None = Field(None, description="The image that it runs.")
    started_at: datetime | None = Field(None, description="When it was started.")
    no_progress_message: str | None = Field(
        None, description="Why the driver is being replaced although it runs: it shows no progress."
    )
    idle_message: str | None = Field(
        None, description="Why the running driver cannot work: it has no executor. Unset while it can."
    )


class ConsecutiveFailures(StatusModel):
    """Failures in a row, and when the next attempt may be made."""

    endings: int = Field(0, description="Consecutive attempts that ended without landing a batch.")
    batch: int | None = Field(None, description="The batch that failed last.")
    batch_failures: int = Field(0, description="How many times that batch has failed.")
    refused_rows: int | None = Field(
        None,
        description="How many rows the sink has refused of the load with which that batch failed last. Unset where it tells no "
        "number.",
    )
    retry_at: datetime | None = Field(None, description="When the next attempt may be made.")


class BatchLimit(StatusModel):
    """A limit of a batch that is smaller than the resource's, because a batch was too large."""

    records: int = Field(description="The current limit of offsets per batch.")
    message: str = Field("", description="Which batch was too large, and how it failed.")
    batch: int = Field(description="The batch that was too large.")
    until: str = Field(
        description="The end of that batch, as JSON of positions by partition: the limit applies until it has landed."
    )
    since: datetime = Field(description="When the limit began to apply.")


class PoisonBatch(StatusModel):
    """A batch that failed too often, which the next driver quarantines, or whose failing records it quarantines."""

    batch: int = Field(description="The batch.")
    until: str = Field(description="The end of that batch, as JSON of positions by partition.")
    error: str = Field("", description="What it failed with last.")
    bisect: bool = Field(
        False,
        description="True while its driver looks for the records that fail by themselves, to quarantine those alone; false if "
        "the whole batch is quarantined.",
    )
    since: datetime = Field(description="When it had failed too often.")


class CheckpointStatus(StatusModel):
    """The checkpoint in use."""

    generation: int = Field(
        description="The number of its generation: the first is 1, and each rebuild makes a new one."
    )
    location: str = Field(description="Its folder.")


class Progress(StatusModel):
    """The progress of the stream. Positions of each partition are in the ledger; `exactlyonce offsets` shows them."""

    batch: int | None = Field(None, description="The latest batch that landed.")
    landed_at: datetime | None = Field(None, description="When it landed.")
    lag_records: int | None = Field(
        None,
        description="The number of records that have not landed; absent if positions of the source do not count records.",
    )
    lag_files: int | None = Field(
        None,
        description="For a source that is a folder, the number of files that have not landed, counted while no driver runs "
        "and if the operator has a login for the folder. With lagProblem, a lower bound.",
    )
    lag_bytes: int | None = Field(None, description="The size of those files in bytes, as they are stored.")
    lag_seconds: int | None = Field(
        None, description="The age in seconds of the oldest record, or file of a folder, that has not landed."
    )
    oldest_record_at: datetime | None = Field(
        None,
        description="The timestamp of that record in the source: its age grows, even while this field is not updated.",
    )
    held_back_records: int | None = Field(
        None,
        description="The number of those records that an open transaction holds back: no reader at read_committed sees them. "
        "Absent unless one has been open for a minute.",
    )
    held_back_since: datetime | None = Field(None, description="The timestamp of the first of them.")
    held_records: int | None = Field(
        None, description="How many records are in quarantine; a replay lands them. Absent until it was counted."
    )
    lag_problem: str | None = Field(
        None,
        description="Why the lag cannot be measured now, or only in part; the values shown are the last known, or lower "
        "bounds.",
    )


class LandedShown(StatusModel):
    """Whether the lease table or consumer group that the stream names shows where it has landed."""

    place: str | None = Field(None, description="The lease table or consumer group that this is about.")
    reason: str | None = Field(
        None, description="Why it does not show where the stream has landed, as a CamelCase code; unset while it does."
    )
    message: str | None = Field(
        None, description="Why it does not show where the stream has landed, and what to do; unset while it does."
    )
    tries: int = Field(0, description="How many times this was retried while no driver runs.")
    retry_at: datetime | None = Field(None, description="When it is retried while no driver runs.")


class ReplaysStatus(StatusModel):
    """Since when the schedule of `spec.replay` is as it is."""

    schedule: str = Field(description="The schedule and its time zone; empty where there is no schedule.")
    since: datetime = Field(
        description="When the operator saw it first: what was due before that does not count as missed."
    )


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """One condition, in the form of Kubernetes' own (metav1.Condition)."""

    type: str = Field(description="Ready, Reconciling, Stalled, Measured, HeldBack, BatchLimited or LandedShown.")
    status: ConditionStatus = Field(description="True, False or Unknown.")
    reason: str = Field(description="Why, as a CamelCase code.")
    message: str = Field(description="Why, in one sentence.")
    last_transition_time: datetime = Field(description="Since when it has this status.")
    observed_generation: int | None = Field(None, description="The generation of the resource that it is about.")


class StreamStatus(StatusModel):
    """The status of one stream."""

    phase: Phase = Field(Phase.PENDING, description="The phase of the stream's life cycle.")
    message: str = Field("", description="The current state in one sentence.")
    observed_generation: int | None = Field(
        None, description="The generation of the resource that the operator has processed."
    )
    attempt: int = Field(0, description="The number of the latest attempt; recorded before its driver is started.")
    verdict: VerdictStatus | None = Field(None, description="The latest verdict.")
    driver: DriverStatus | None = Field(None, description="The latest driver.")
    checkpoint: CheckpointStatus | None = Field(None, description="The checkpoint in use.")
    progress: Progress | None = Field(None, description="The progress of the stream.")
    consecutive_failures: ConsecutiveFailures = Field(ConsecutiveFailures(), description="Consecutive failures.")
    batch_limit: BatchLimit | None = Field(
        None, description="The reduced limit per batch that applies now; unset while the resource's own limit applies."
    )
    poison_batch: PoisonBatch | None = Field(
        None, description="The batch that the next driver quarantines; unset once the stream has continued after it."
    )
    last_good: GoodAttempt | None = Field(
        None, description="The latest attempt whose driver has run Spark: a bad update is rolled back to its spec."
    )
    bad_update: BadUpdate | None = Field(
        None,
        description="The requested change that could not be started; unset once it runs or the resource has changed.",
    )
    landed_shown: LandedShown | None = Field(
        None,
        description="Whether landed positions are up to date in the lease table or consumer group; unset if the spec names "
        "neither.",
    )
    took_over: str | None = Field(
        None,
        description="The lease table or consumer group from which the stream started. Only there may it overwrite what the "
        "previous consumer has written.",
    )
    replays: ReplaysStatus | None = Field(
        None, description="Since when the schedule of `spec.replay` is as it is; unset before the first one."
    )
    halt_reason: str | None = Field(
        None,
        description="Why the stream has halted, as a CamelCase code: the reason of the verdict, or the error that the driver "
        "or the operator ended with, such as FilesGone, LoadsInDoubt or LedgerLost. Unset unless the phase is Halted.",
    )
    acted_on: str | None = Field(
        None,
        description="A hash of the last change by a user that the operator has handled; if it changes, a halted stream "
        "tries again.",
    )
    spec_problem: str | None = Field(
        None, description="What is wrong with the spec of this generation; the last valid one stays in force meanwhile."
    )
    conditions: Annotated[tuple[Condition, ...], Unique(("type",))] = Field(
        (),
        description="Ready, Reconciling and Stalled, as kstatus reads them, and Measured: whether the lag is known now; "
        "BatchLimited: whether batches are kept smaller than the resource allows, because one was too large; LandedShown: "
        "whether the lease table or consumer group that the stream names shows where it has landed.",
    )

    @property
    def current_driver(self) -> DriverStatus | None:
        """The driver of the latest attempt; None until its start is recorded."""
        return self.driver if self.driver is not None and self.driver.attempt == self.attempt else None
