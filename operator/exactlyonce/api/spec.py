"""The spec of an ExactlyOnceStream: one source of truth for its fields, defaults and bounds."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from exactlyonce.api import refused_conf
from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.checkpoint_retention import CheckpointRetention
from exactlyonce.api.conf_rules import CONF_RULES
from exactlyonce.api.connector_rules import CONNECTOR_RULES
from exactlyonce.api.field_classes import remove
from exactlyonce.api.folder_rules import folder_rules
from exactlyonce.api.ledger import Ledger, ledger_rules
from exactlyonce.api.ledger_retention import LedgerRetention
from exactlyonce.api.output_mode import OUTPUT_MODE_RULES, OutputMode
from exactlyonce.api.pods import Driver, Executor, ImagePullPolicy, ImagePullSecret, SparkUi
from exactlyonce.api.recovery import Recovery
from exactlyonce.api.replay_schedule import ReplaySchedule
from exactlyonce.api.sink import Sink
from exactlyonce.api.source import Source
from exactlyonce.api.tombstones import TOMBSTONE_RULES
from exactlyonce.api.transform import Transform
from exactlyonce.connectors.registry import LEDGERS, SINKS, SOURCES
from exactlyonce.schema.constraints import Rule, Unique, matches
from exactlyonce.schema.model import LARGEST, Duration, Flag, Model, Texts, Whole, within

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
DEFAULT_SHUFFLE_PARTITIONS = 8

_COUNT = r"[1-9][0-9]{0,5}"
_SHUFFLES = Rule(
    f"!('{SHUFFLE_PARTITIONS}' in self) || self['{SHUFFLE_PARTITIONS}'].matches('^{_COUNT}$')",
    lambda conf: re.fullmatch(_COUNT, conf.get(SHUFFLE_PARTITIONS, "1")) is not None,
    f"{SHUFFLE_PARTITIONS} is a whole number from 1 to 999999",
)

StreamId = Annotated[
    str,
    Field(min_length=1, max_length=200),
    matches(
        "[A-Za-z0-9][A-Za-z0-9._/-]*",
        "write letters, digits, dots, underscores, slashes and hyphens, a letter or a digit first",
    ),
]
Image = Annotated[
    str, Field(min_length=1, max_length=512), matches(r"[!-~]+", "write an image as registry.example/name:tag")
]


class Delivery(StrEnum):
    """What is promised for every record."""

    EXACTLY_ONCE = "ExactlyOnce"
    AT_LEAST_ONCE = "AtLeastOnce"
    AT_MOST_ONCE = "AtMostOnce"


class DeletionPolicy(StrEnum):
    """What becomes of what is kept when the resource is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class Trigger(Model):
    """When a batch starts; without one, as soon as the one before has landed."""

    interval: Annotated[Duration, within("0s", "24h")] | None = Field(
        None, description="The time from the start of one batch to the next."
    )
    available_now: Flag = Field(False, description="Land what the source holds now, then complete.")

    rules = (
        Rule(
            "!has(self.interval) || !self.availableNow",
            lambda it: it.interval is None or not it.available_now,
            "give interval or availableNow, not both",
        ),
    )


class Objectives(Model):
    """What the alerts of the chart fire on."""

    lag_seconds: Whole | None = Field(
        None, ge=1, le=31_536_000, description="How far the stream may be behind its source, in seconds."
    )


class StreamSpec(Model):
    """What an ExactlyOnceStream asks for."""

    stream_id: StreamId | None = Field(
        None,
        description="The ledger's key of this stream; the default is <namespace>/<name>. It never changes; never reuse one.",
    )
    delivery: Delivery = Field(
        Delivery.EXACTLY_ONCE,
        description="The guarantee for every record. It can be changed only while the stream is suspended.",
    )
    image: Image | None = Field(
        None,
        description="The image of drivers and executors, which decides the version of Spark; the default is the operator's. "
        "Not used in local mode.",
    )
    image_pull_policy: ImagePullPolicy | None = Field(
        None, description="When a node pulls the image; the default is Kubernetes' own."
    )
    image_pull_secrets: Annotated[tuple[ImagePullSecret, ...], Field(max_length=16), Unique(("name",))] = Field(
        (), description="Secrets with the logins of registries."
    )
    source: Source = Field(description="Where records come from: exactly one source, and the format of its records.")
    transform: Transform | None = Field(None, description="How rows are transformed.")
    output_mode: OutputMode = Field(
        OutputMode.APPEND,
        description="Which rows of the transform's result each batch writes. Append: those that never change again. Update: "
        "those that changed, with write: Upsert or Merge in the sink. Complete: all of an aggregation's rows, at most "
        "100,000, in place of whatever the table holds; the table then belongs to the stream, and rows of other writers are "
        "deleted. A query that keeps state cannot change it.",
    )
    sink: Sink = Field(
        description="Where rows take effect: exactly one sink. Its kind, its table and the ledger's schema are "
        "changed only while the stream is suspended."
    )
    ledger: Ledger | None = Field(
        None,
        description="Where the record of what has landed is kept, for a sink that does not keep it in its own database: "
        "exactly one place. Left out, it is an object log in the folder ledger of the checkpoint's location. It can be "
        "changed only while the stream is suspended.",
    )
    checkpoint: Checkpoint = Field(
        description="Where Spark's logs are kept, in exactly one place. It can be changed only while the stream is suspended."
    )
    trigger: Trigger = Field(Trigger(), description="When a batch starts.")
    recovery: Recovery = Field(Recovery(), description="What to do when something is lost or fails.")
    replay: ReplaySchedule | None = Field(
        None,
        description="When the operator replays, by itself, what is in quarantine, with a StreamReplay each time; without it, "
        "a person creates them.",
    )
    driver: Driver = Field(Driver(), description="The Spark driver.")
    executor: Executor = Field(Executor(), description="The Spark executors; in local mode the driver works alone.")
    spark_conf: Annotated[Texts, refused_conf.RULES, _SHUFFLES] = Field(
        {}, description="Spark settings; settings that would break the guarantee or the launch are refused."
    )
    spark_ui: SparkUi = Field(SparkUi(), description="Spark's user interface.")
    drain_timeout: Annotated[Duration, within("1s", "24h")] = Field(
        timedelta(minutes=5),
        description="How long a driver may take to end after the current batch; choose more than a batch takes. A batch that "
        "no executor runs is left to the next driver at once.",
    )
    suspend: Flag = Field(False, description="True stops the stream after the current batch; false starts it again.")
    restart_nonce: Whole = Field(
        0, ge=0, le=LARGEST, description="Change this number to restart the driver after the current batch."
    )
    deletion_policy: DeletionPolicy = Field(
        DeletionPolicy.RETAIN,
        description="What happens to the checkpoint and to the ledger's rows when the resource is deleted. Rows and files "
        "that have landed always stay, and so does a checkpoint on a claim, which the operator does not reach.",
    )
    history: Whole = Field(
        3, ge=0, le=100, description="How many ended drivers (pods, or folders of a local run) are kept for their logs."
    )
    ledger_retention: LedgerRetention = Field(
        LedgerRetention(),
        description="How long the ledger keeps records that no decision needs any longer. The driver deletes older ones, a "
        "little at a time, beside its batches.",
    )
    checkpoint_retention: CheckpointRetention = Field(
        CheckpointRetention(), description="How much of Spark's logs is kept below the checkpoint's location."
    )
    objectives: Objectives = Field(Objectives(), description="Thresholds at which the alerts fire.")

    rules = (
        *CONNECTOR_RULES,
        *ledger_rules(SINKS),
        *folder_rules(SOURCES, SINKS, LEDGERS),
        *OUTPUT_MODE_RULES,
        *TOMBSTONE_RULES,
        *CONF_RULES,
        Rule(
            "!has(self.recovery) || !has(self.recovery.onPoisonBatch) || self.recovery.onPoisonBatch == 'Halt' || "
            "!has(self.outputMode) || self.outputMode == 'Append'",
            lambda it: not it.recovery.on_poison_batch.continues or it.output_mode is OutputMode.APPEND,
            "recovery.onPoisonBatch: Quarantine and Bisect need outputMode: Append; the state of an aggregation would "
            "lack the records for good",
        ),
    )

    @property
    def shuffle_partitions(self) -> int:
        """How many tasks a shuffle has; a generation keeps the number it was seeded with, as every checkpoint of Spark does."""
        return int(self.spark_conf.get(SHUFFLE_PARTITIONS, DEFAULT_SHUFFLE_PARTITIONS))

    def differences(self, *without: str) -> dict[str, Any]:
        """Return what differs from the defaults, as a document, but for the fields at the paths `without`.

        Read again it is the same spec.
        """
        document: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for path in without:
            remove(document, path)
        return document


def limit_words(spec: StreamSpec) -> str:
    """Return how large a batch may be, in words that are the same as long as the limit is."""
    return spec.source.spec.batch_limit(spec.trigger.interval)
