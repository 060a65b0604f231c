"""How long the ledger keeps rows that no decision needs any more: evidence for people."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from exactlyonce.schema.model import Duration, Model, Whole, within

FEWEST_BATCHES = 200
"""So many of the latest batches are kept whatever the resource asks for."""

Age = Annotated[Duration, within("1h", "9999h")]


class BatchRetention(Model):
    """Rows of batches that are too many or too old are deleted, whichever comes first."""

    count: Whole = Field(
        10_000,
        ge=FEWEST_BATCHES,
        le=10_000_000,
        description="How many of the latest batches are kept; an object log keeps fewer where they have more than 50,000 "
        "ranges of partitions together.",
    )
    age: Age = Field(
        timedelta(days=30),
        description=f"How long a batch is kept; the latest {FEWEST_BATCHES} that landed are kept however old they are.",
    )


class FailureRetention(Model):
    """How long ranges are kept whose batch failed and landed in a later try."""

    age: Age = Field(
        timedelta(days=90), description="How long after the batch landed; an object log keeps the latest 2,500 ranges."
    )


class LossRetention(Model):
    """How long evidence of records without effect is kept."""

    age: Age | None = Field(None, description="How long; by default, as long as the stream exists.")


class LedgerRetention(Model):
    """What the ledger keeps beside the rows that decisions need, which are never deleted."""

    batches: BatchRetention = Field(BatchRetention(), description="The record of each batch: its ranges and counts.")
    closed_failures: FailureRetention = Field(
        FailureRetention(), description="Ranges whose batch failed and landed in a later try, or was planned again."
    )
    lost_failures: LossRetention = Field(
        LossRetention(), description="Ranges whose records take no effect, and the batches that AtMostOnce gave up."
    )
    dead_letters: LossRetention = Field(LossRetention(), description="Malformed records that landed as dead letters.")
