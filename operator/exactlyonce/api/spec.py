"""The spec of an ExactlyOnceStream: one source of truth for its fields, defaults and bounds."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from pydantic import Field, model_validator

from exactlyonce.api.model import Duration, Model
from exactlyonce.api.refused_conf import refusal
from exactlyonce.api.sink import Sink
from exactlyonce.api.source import Source

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
DEFAULT_SHUFFLE_PARTITIONS = 8


class Delivery(StrEnum):
    """What is promised for every record."""

    EXACTLY_ONCE = "ExactlyOnce"
    AT_LEAST_ONCE = "AtLeastOnce"
    AT_MOST_ONCE = "AtMostOnce"


class OnCheckpointLost(StrEnum):
    """What happens when the checkpoint cannot be gone on with."""

    REBUILD_FROM_SINK = "RebuildFromSink"
    HALT = "Halt"


class OnSourceTruncated(StrEnum):
    """What happens when the source no longer holds the next record."""

    HALT = "Halt"
    RESUME_FROM_EARLIEST = "ResumeFromEarliest"


class PythonTransform(Model):
    """A function `(DataFrame) -> DataFrame` of a module on the driver's Python path."""

    module: str = Field(pattern=r"^[A-Za-z_][\w]*(\.[A-Za-z_][\w]*)*$", description="The module.")
    function: str = Field("transform", pattern=r"^[A-Za-z_]\w*$", description="The function in it.")


class Transform(Model):
    """What is done to the rows; without one they land as the format gives them."""

    sql: str | None = Field(None, min_length=1, description="A SELECT over the view `source`.")
    python: PythonTransform | None = Field(None, description="A Python function from DataFrame to DataFrame.")

    @model_validator(mode="after")
    def _one_way(self) -> Transform:
        if (self.sql is None) == (self.python is None):
            raise ValueError("give exactly one of sql and python")
        return self


class Checkpoint(Model):
    """Where Spark's logs are kept."""

    location: str = Field(
        pattern=r"^(file://)?/[^\x00]*$",
        description="A folder of this stream alone: an absolute path, or file:///path.",
    )


class Trigger(Model):
    """When a batch starts; without one, as soon as the one before has landed."""

    interval: Duration | None = Field(None, description="The time from the start of one batch to the next.")
    available_now: bool = Field(False, description="Land what the source holds now, then complete.")

    @model_validator(mode="after")
    def _one_way(self) -> Trigger:
        if self.interval is not None and self.available_now:
            raise ValueError("give interval or availableNow, not both")
        return self


class Backoff(Model):
    """How long to wait before a restart while nothing lands."""

    initial: Duration = Field(timedelta(seconds=5), description="The first wait; it doubles with every further one.")
    max: Duration = Field(timedelta(minutes=5), description="The longest wait.")

    @model_validator(mode="after")
    def _ordered(self) -> Backoff:
        if self.initial > self.max:
            raise ValueError("initial may not exceed max")
        return self


class Recovery(Model):
    """What is done when something was lost or fails again and again."""

    on_checkpoint_lost: OnCheckpointLost = Field(
        OnCheckpointLost.REBUILD_FROM_SINK, description="When the checkpoint is lost, corrupt or behind the sink."
    )
    on_source_truncated: OnSourceTruncated = Field(
        OnSourceTruncated.HALT, description="When the source no longer holds the next record."
    )
    max_failures_per_batch: int = Field(5, ge=1, le=1000, description="Halt when one batch has failed this often.")
    backoff: Backoff = Field(Backoff(), description="How long to wait while nothing lands.")


class Driver(Model):
    """The Spark driver."""

    cores: int = Field(2, ge=1, le=256, description="The cores it works with.")
    memory: str = Field("1g", pattern=r"^[1-9]\d*[mg]$", description="The heap of its JVM, such as 2g.")


class StreamSpec(Model):
    """What an ExactlyOnceStream asks for."""

    stream_id: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
        description="The ledger's key of this stream; the default is <namespace>/<name>. Never reuse one.",
    )
    delivery: Delivery = Field(Delivery.EXACTLY_ONCE, description="What is promised for every record.")
    source: Source = Field(description="Where records come from.")
    transform: Transform | None = Field(None, description="What is done to the rows.")
    sink: Sink = Field(description="Where rows take effect.")
    checkpoint: Checkpoint = Field(description="Where Spark's logs are kept.")
    trigger: Trigger = Field(Trigger(), description="When a batch starts.")
    recovery: Recovery = Field(Recovery(), description="What is done when something was lost or fails.")
    driver: Driver = Field(Driver(), description="The Spark driver.")
    spark_conf: dict[str, str] = Field({}, description="Spark settings; what would break the promise is refused.")
    drain_timeout: Duration = Field(
        timedelta(minutes=5), description="How long a driver may take to end after the batch in hand."
    )

    @property
    def shuffle_partitions(self) -> int:
        """How many tasks a shuffle has; a generation keeps the number it was seeded with, as every checkpoint of Spark does."""
        return int(self.spark_conf.get(SHUFFLE_PARTITIONS, DEFAULT_SHUFFLE_PARTITIONS))

    @model_validator(mode="after")
    def _keeps_the_promise(self) -> StreamSpec:
        for key, value in self.spark_conf.items():
            reason = refusal(key, value)
            if reason is not None:
                raise ValueError(f"sparkConf may not set {key} to {value}: {reason}")
        partitions = self.spark_conf.get(SHUFFLE_PARTITIONS, "1")
        if not (partitions.isascii() and partitions.isdigit() and int(partitions) > 0):
            raise ValueError(f"sparkConf sets {SHUFFLE_PARTITIONS} to {partitions}; give a whole number above 0")
        if self.source.kafka.max_rate_per_partition is not None and self.trigger.interval is None:
            raise ValueError("source.kafka.maxRatePerPartition needs trigger.interval: a rate is a number in a time")
        return self
