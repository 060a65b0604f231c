"""The parts of a status about attempts: the task of a driver, the latest attempt that ran Spark, and a bad update."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from exactlyonce.schema.model import Model


class DriverTask(StrEnum):
    """What one driver is started to do."""

    RUN_QUERY = "RunQuery"
    """It finishes what is decided, and runs the query."""
    FINISH_ONLY = "FinishOnly"
    """It finishes what earlier drivers have decided, or landed and not shown, runs no query, and ends (docs/adr/0062)."""


class StatusModel(Model):
    """A part of the status. Fields that this release does not know are passed over."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class GoodAttempt(StatusModel):
    """The latest attempt whose driver is known to have run Spark."""

    attempt: int = Field(description="The attempt; the ConfigMap that holds its spec is kept.")
    plan: str = Field(description="A hash of what its driver was built from.")
    image: str | None = Field(None, description="The image of its driver.")


class BadUpdate(StatusModel):
    """A changed resource, or a new default image, whose drivers ended before Spark was up."""

    plan: str = Field(description="A hash of what those drivers were built from.")
    image: str | None = Field(None, description="The image of those drivers.")
    attempt: int | None = Field(
        None,
        description="The latest such attempt; unset where the API server refused the pod, so that no pod was made.",
    )
    at: datetime = Field(description="When the latest of them was counted.")
    failures: int = Field(description="The number of consecutive failures.")
    tries: int = Field(description="The number of failures after which the stream is rolled back.")
    reason: str = Field("", description="How the latest of them ended, as a CamelCase code.")
    message: str = Field("", description="How the latest of them ended, in one sentence.")
    rolled_back: bool = Field(
        False,
        description="Whether the spec and the image of `lastGood` are in force until the resource is changed.",
    )
    not_rolled_back_message: str | None = Field(
        None, description="Why the stream is not rolled back, although enough drivers have failed."
    )
