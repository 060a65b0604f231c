"""What is so: the status of a stream, which is also the operator's write-ahead log."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from exactlyonce.api.model import Model


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


class VerdictStatus(Model):
    """The latest verdict of reconciliation."""

    kind: str = Field(description="The verdict.")
    reason: str = Field(description="Why, in one sentence.")
    attempt: int = Field(description="The attempt it was made for.")
    at: datetime = Field(description="When it was made.")
    batch: int | None = Field(None, description="The batch it is about.")
    evidence: tuple[dict[str, Any], ...] = Field((), description="What was seen.")


class DriverStatus(Model):
    """The latest driver."""

    attempt: int = Field(description="Its attempt.")
    landed_at_start: int | None = Field(None, description="The landed batch when it was started.")
    plan: str | None = Field(None, description="What it was made of, as a hash: another one needs another driver.")
    ended: str | None = Field(None, description="How it ended; unset while it runs.")
    proof: str | None = Field(None, description="How its death is known; unset when it is not.")
    message: str | None = Field(None, description="Its last words.")


class Trouble(Model):
    """Failures in a row, and when the next attempt may be made."""

    endings: int = Field(0, description="Attempts in a row that ended without landing a batch.")
    batch: int | None = Field(None, description="The batch that the last failures were of.")
    batch_failures: int = Field(0, description="How often that batch has failed.")
    retry_at: datetime | None = Field(None, description="When the next attempt may be made.")


class StreamStatus(Model):
    """The status of one stream."""

    phase: Phase = Field(Phase.PENDING, description="Where the stream is in its life.")
    message: str = Field("", description="What a person should know now, in one sentence.")
    attempt: int = Field(0, description="The latest attempt; recorded before it acts.")
    verdict: VerdictStatus | None = Field(None, description="The latest verdict.")
    driver: DriverStatus | None = Field(None, description="The latest driver.")
    trouble: Trouble = Field(Trouble(), description="Failures in a row.")
