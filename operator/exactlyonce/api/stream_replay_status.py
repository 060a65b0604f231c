"""What is so: the status of a StreamReplay, its phases, and the conditions that fit them. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from exactlyonce.api.attempt_status import StatusModel
from exactlyonce.api.conditions import READY, RECONCILING, STALLED
from exactlyonce.api.status import Condition, ConditionStatus
from exactlyonce.schema.constraints import Unique

_MESSAGE_MAX_LENGTH = 32_768
"""metav1.Condition's own bound of a message."""


class ReplayPhase(StrEnum):
    """Where a replay is in its life."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    REFUSED = "Refused"

    @property
    def is_final(self) -> bool:
        """Whether nothing more is done for this resource."""
        return not REPLAY_TRANSITIONS[self]


REPLAY_TRANSITIONS: Mapping[ReplayPhase, Mapping[ReplayPhase, str]] = {
    ReplayPhase.PENDING: {
        ReplayPhase.RUNNING: "An attempt is recorded; its pod is created next.",
        ReplayPhase.SUCCEEDED: "A dry run shows that everything can be replayed, or nothing is left to be replayed.",
        ReplayPhase.FAILED: "A dry run shows ranges that cannot be replayed, or what is left of them is lost.",
        ReplayPhase.REFUSED: "What is asked for cannot be done: there is no such stream, or it takes no replay.",
    },
    ReplayPhase.RUNNING: {
        ReplayPhase.PENDING: "The attempt ended before it was done, and the next one waits.",
        ReplayPhase.SUCCEEDED: "Every record that was asked for has landed.",
        ReplayPhase.FAILED: "Some of the records have not landed, and trying again would not change that.",
        ReplayPhase.REFUSED: "The stream is gone, or is another one by now, or the replay itself was refused.",
    },
    ReplayPhase.SUCCEEDED: {},
    ReplayPhase.FAILED: {},
    ReplayPhase.REFUSED: {},
}
"""Every transition, and what it means."""


class Counts(StatusModel):
    """How much there is of each outcome; what was asked for is the sum of the others and of what the stream reads again."""

    asked: int = Field(0, description="What was asked for, when the first attempt began.")
    replayed: int = Field(0, description="What has landed by a replay.")
    put_back: int = Field(
        0,
        description="What has not landed and can be tried again: in quarantine, a dead letter, or a part of the backfill.",
    )
    lost: int = Field(0, description="Records that the source no longer holds, or that a person has given up.")


class ShownRange(StatusModel):
    """A range that a dry run has found."""

    id: str = Field(description="Its id.")
    records: int | None = Field(None, description="How many records it has; unset where its positions count none.")
    status: str = Field(description="Its status in the ledger.")
    found: str = Field(description="Whether it can be replayed, and whether the source holds its records.")


class ReplayStatus(StatusModel):
    """The status of one StreamReplay."""

    phase: ReplayPhase = Field(ReplayPhase.PENDING, description="The phase of the replay.")
    message: str = Field("", description="The current state in one sentence.")
    observed_generation: int | None = Field(
        None, description="The generation of the resource that the operator has processed."
    )
    attempt: int = Field(0, description="The number of the latest attempt; recorded before its pod is created.")
    stream_uid: str | None = Field(None, description="The uid of the stream when the first attempt was recorded.")
    pod_name: str | None = Field(None, description="The pod of the latest attempt; unset until it exists.")
    ranges: Counts | None = Field(None, description="The ranges; unset until they were looked for.")
    records: Counts | None = Field(
        None, description="The same, counted in records; unset for a source whose positions count no records."
    )
    endings: int = Field(0, description="Consecutive attempts that ended without landing anything.")
    held_at_start: int | None = Field(
        None,
        description="How many of the records were in quarantine, or left of a backfill, when the latest attempt was recorded.",
    )
    landed_at_start: int | None = Field(
        None, description="How many of the records had landed when the latest attempt was recorded."
    )
    progressed_at: datetime | None = Field(
        None,
        description="When an attempt was last seen to have landed something; before that, when the first attempt began since "
        "the replay was created or called off.",
    )
    no_progress_message: str | None = Field(
        None, description="Why the pod of the latest attempt is being replaced although it runs: it shows no progress."
    )
    retry_at: datetime | None = Field(None, description="When the next attempt may be made.")
    started_at: datetime | None = Field(None, description="When the first attempt was recorded.")
    ended_at: datetime | None = Field(None, description="When the replay got its last phase.")
    problems: tuple[str, ...] = Field(
        (), description="A sentence for each part that has not landed, as far as the latest attempt could report them."
    )
    shown: Annotated[tuple[ShownRange, ...], Unique(("id",))] = Field(
        (), description="The ranges or dead letters that a dry run has found, the first 100 of them."
    )
    conditions: Annotated[tuple[Condition, ...], Unique(("type",))] = Field(
        (), description="Ready, Reconciling and Stalled, as kstatus reads them."
    )


_HOLDS: Mapping[ReplayPhase, str] = {
    ReplayPhase.PENDING: RECONCILING,
    ReplayPhase.RUNNING: RECONCILING,
    ReplayPhase.SUCCEEDED: READY,
    ReplayPhase.FAILED: STALLED,
    ReplayPhase.REFUSED: STALLED,
}
"""Which of the three conditions is True in each phase."""


def rendered_replay(status: ReplayStatus, resource: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the status as it is stored in a resource, with the conditions that fit it."""
    generation = int(resource["metadata"]["generation"])
    before = {condition.type: condition for condition in status.conditions}
    made = []
    for kind in (READY, RECONCILING, STALLED):
        so = ConditionStatus.TRUE if kind == _HOLDS[status.phase] else ConditionStatus.FALSE
        known = before.get(kind)
        since = known.last_transition_time if known is not None and known.status is so else now.replace(microsecond=0)
        made.append(
            Condition(
                type=kind,
                status=so,
                reason=str(status.phase),
                message=status.message[:_MESSAGE_MAX_LENGTH],
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    complete = status.model_copy(update={"observed_generation": generation, "conditions": tuple(made)})
    return complete.to_document()
